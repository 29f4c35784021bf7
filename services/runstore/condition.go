package runstore

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// conditions gathers what keeps parts of the service from working, and tells the whole on each change.
type conditions struct {
	mu    sync.Mutex
	parts map[string]error
	tell  func(error)
}

func newConditions(tell func(error)) *conditions {
	return &conditions{parts: map[string]error{}, tell: tell}
}

// report sets a part's trouble; nil: it works.
func (c *conditions) report(part string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil && c.parts[part] == nil {
		return
	}
	if err == nil {
		delete(c.parts, part)
	} else {
		c.parts[part] = err
	}
	if len(c.parts) == 0 {
		c.tell(nil)
		return
	}
	texts := make([]string, 0, len(c.parts))
	for name, err := range c.parts {
		texts = append(texts, fmt.Sprintf("%s: %v", name, err))
	}
	slices.Sort(texts)
	c.tell(errors.New(strings.Join(texts, "; ")))
}
