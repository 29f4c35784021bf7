package toolrouter

import (
	"errors"
	"os"
	"slices"

	"github.com/cairnrun/cairn/pkg/llm"
	"github.com/cairnrun/cairn/pkg/tool"
)

// builtinTools are served in the router's process, through the same subjects as any other tool.
func builtinTools(c Config) (tools []*tool.Tool, closeAll func(), err error) {
	tools = slices.Clone(c.Tools)
	closeAll = func() {}
	client, err := modelClient(c.Model)
	if err != nil {
		return nil, nil, err
	}
	if client != nil {
		tools = append(tools, (&model{client: client}).tools()...)
	}
	if c.Root != "" {
		files, err := openFiles(c.Root)
		if err != nil {
			return nil, nil, err
		}
		tools = append(tools, files.tools()...)
		closeAll = files.close
	}
	return tools, closeAll, nil
}

// modelClient is nil where no model is configured.
func modelClient(c llm.Config) (*llm.Client, error) {
	if c.Model == "" {
		var err error
		if c, err = llm.FromEnv(os.Getenv); errors.Is(err, llm.ErrNotConfigured) {
			return nil, nil
		} else if err != nil {
			return nil, err
		}
	}
	return llm.New(c)
}
