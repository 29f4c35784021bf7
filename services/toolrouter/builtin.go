package toolrouter

import (
	"slices"

	"github.com/cairnrun/cairn/pkg/tool"
)

// builtinTools are served in the router's process, through the same subjects as any other tool.
func builtinTools(c Config) (tools []*tool.Tool, closeAll func(), err error) {
	tools = slices.Clone(c.Tools)
	closeAll = func() {}
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
