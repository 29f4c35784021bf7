package planner

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/cairnrun/cairn/pkg/plan"
	"github.com/cairnrun/cairn/pkg/yamldoc"
	planv1 "github.com/cairnrun/cairn/proto/cairn/plan/v1"
	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// templateBook is a templates file: goal patterns that make plans, and rules that make patches.
type templateBook struct {
	templates []*template
	rules     []*rule
}

// template makes a plan of a goal that fits one of its patterns.
type template struct {
	Name  string          `json:"name"`
	Goal  patterns        `json:"goal"`
	Slots map[string]slot `json:"slots"`
	Plan  json.RawMessage `json:"plan"`

	form plan.Value
}

// maxTemplatesBytes bounds a templates file.
const maxTemplatesBytes = 4 << 20

// loadTemplates reads and checks a templates file. Errors name the file, the line and what is wrong there.
func loadTemplates(path string) (*templateBook, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("templates: %w; name another file with --templates", err)
	}
	if info.Size() > maxTemplatesBytes {
		return nil, fmt.Errorf("templates: %s has %d bytes, over the limit of %d", path, info.Size(), maxTemplatesBytes)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("templates: %w", err)
	}
	book, err := parseTemplates(text)
	if err != nil {
		return nil, fmt.Errorf("templates: %s: %w", path, err)
	}
	return book, nil
}

func parseTemplates(text []byte) (*templateBook, error) {
	doc, err := yamldoc.Parse(text)
	if err != nil {
		return nil, err
	}
	var parts struct {
		Templates []json.RawMessage `json:"templates"`
		Rules     []json.RawMessage `json:"rules"`
	}
	if err := decodeStrict(doc.JSON, &parts); err != nil {
		return nil, fmt.Errorf("%w; the document has templates: and rules:", err)
	}
	book := &templateBook{}
	at := func(kind string, i int, name string, err error) error {
		if name == "" {
			name = strconv.Itoa(i + 1)
		}
		return fmt.Errorf("line %d: %s %s: %w", doc.Line(fmt.Sprintf("/%ss/%d", kind, i)), kind, name, err)
	}
	for i, raw := range parts.Templates {
		t := &template{}
		err := decodeStrict(raw, t)
		if err == nil {
			err = t.compile()
		}
		if err == nil && book.template(t.Name) != nil {
			err = errors.New("the name is used twice")
		}
		if err != nil {
			return nil, at("template", i, t.Name, err)
		}
		book.templates = append(book.templates, t)
	}
	for i, raw := range parts.Rules {
		r := &rule{}
		err := decodeStrict(raw, r)
		if err == nil {
			err = r.compile(book)
		}
		if err != nil {
			return nil, at("rule", i, r.Name, err)
		}
		book.rules = append(book.rules, r)
	}
	return book, nil
}

func decodeStrict(text []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	return nil
}

func (t *template) compile() error {
	switch {
	case t.Name == "":
		return errors.New("name is missing")
	case len(t.Goal) == 0:
		return errors.New("goal is missing: give one pattern or a list")
	case len(t.Plan) == 0:
		return errors.New("plan is missing")
	}
	if err := t.Goal.compile(t.Slots); err != nil {
		return err
	}
	form, err := plan.ParseValue(string(t.Plan))
	if err != nil {
		return fmt.Errorf("plan: %w", err)
	}
	if _, ok := form.Get("steps"); !ok {
		return errors.New("plan: it has no steps")
	}
	t.form = form
	return checkForms(form, t.Goal.known(t.Slots), false)
}

func (b *templateBook) template(name string) *template {
	for _, t := range b.templates {
		if t.Name == name {
			return t
		}
	}
	return nil
}

// templates is the strategy that uses a templates file. It needs no model.
type templates struct{ book *templateBook }

func (templates) name() string { return "templates" }

func (s templates) plan(_ context.Context, r planRequest) (*proposal, error) {
	for _, t := range s.book.templates {
		values, ok := t.Goal.match(r.GetSpec().GetGoal(), t.Slots)
		if !ok {
			continue
		}
		doc, err := fill(t.form, values, nil)
		if err != nil {
			// Only facts can be missing, and plans have none.
			return nil, fmt.Errorf("template %s: %w", t.Name, err)
		}
		return &proposal{
			doc: doc, text: string(doc), createdBy: planv1.CreatedBy_CREATED_BY_TEMPLATE, fixed: true,
			trace: &runv1.PlannerTrace{Source: sourceTemplate, Name: t.Name},
		}, nil
	}
	return nil, nil
}

func (s templates) replan(_ context.Context, r replanRequest) (*proposal, error) {
	for _, ru := range s.book.rules {
		p, err := ru.propose(r)
		if err != nil {
			return nil, fmt.Errorf("rule %s: %w", ru.Name, err)
		}
		if p != nil {
			return p, nil
		}
	}
	return nil, nil
}
