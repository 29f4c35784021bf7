package runstore

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	runv1 "github.com/cairnrun/cairn/proto/cairn/run/v1"
)

// filter is a parsed filter of ListRuns: terms joined by AND.
//
//	status=failed            also state=failed
//	phase=executing
//	tenant=acme
//	label.team=shop
//	tool=order.pay           the run's plan uses it
//	submitted>=2026-01-02    or a time, as 2026-01-02T15:04:05Z; also >, <, <=, and the same with updated
//	goal~"blue phone"        the goal holds this text; ASCII letters in any case
//
// A value with spaces or quotes stands in double quotes, written as a JSON string.
type filter struct {
	// terms of the table run_terms, all of which must hold.
	terms []string
	where []string
	args  []any
}

// filterError says what is wrong with a filter and where, as a byte offset.
type filterError struct {
	offset int
	text   string
}

func (e *filterError) Error() string { return fmt.Sprintf("at byte %d: %s", e.offset, e.text) }

const filterHelp = `known are status=, phase=, tenant=, label.NAME=, tool=, submitted and updated with > >= < <=, and goal~`

// parseFilter reads a filter of at most maxTerms terms.
func parseFilter(text string, maxTerms int) (filter, error) {
	var f filter
	rest, terms := text, 0
	for {
		rest = strings.TrimLeft(rest, " \t\n\r")
		if rest == "" && terms == 0 {
			return f, nil
		}
		at := len(text) - len(rest)
		if terms++; terms > maxTerms {
			return filter{}, &filterError{at, fmt.Sprintf("more than %d terms", maxTerms)}
		}
		name, op, value, tail, err := scanTerm(rest)
		if err == nil {
			err = f.add(name, op, value)
		}
		if err != nil {
			return filter{}, &filterError{at, err.Error()}
		}
		tail = strings.TrimLeft(tail, " \t\n\r")
		if tail == "" {
			return f, nil
		}
		and, after, _ := strings.Cut(tail, " ")
		if and != "AND" {
			return filter{}, &filterError{len(text) - len(tail), fmt.Sprintf("terms are joined by AND, not by %q", shorten(and, 20))}
		}
		if rest = after; strings.TrimSpace(rest) == "" {
			return filter{}, &filterError{len(text), "a term must follow AND"}
		}
	}
}

// scanTerm splits "name op value" from the front of a text.
func scanTerm(s string) (name, op, value, rest string, err error) {
	i := strings.IndexAny(s, "=<>~!")
	if i <= 0 || strings.ContainsAny(strings.TrimSpace(s[:i]), " \t\n\r\"") {
		return "", "", "", "", fmt.Errorf("%q is not a term such as status=failed; %s", shorten(s, 40), filterHelp)
	}
	name, s = strings.TrimSpace(s[:i]), s[i:]
	op = s[:1]
	if len(s) > 1 && s[1] == '=' && (op == "<" || op == ">" || op == "!") {
		op = s[:2]
	}
	s = strings.TrimLeft(s[len(op):], " ")
	if strings.HasPrefix(s, `"`) {
		quoted, qerr := strconv.QuotedPrefix(s)
		if qerr == nil {
			value, qerr = strconv.Unquote(quoted)
		}
		if qerr != nil || !utf8.ValidString(value) {
			return "", "", "", "", fmt.Errorf("the quoted value of %s does not end or is not valid", name)
		}
		return name, op, value, s[len(quoted):], nil
	}
	if i := strings.IndexAny(s, " \t\n\r"); i >= 0 {
		value, rest = s[:i], s[i:]
	} else {
		value = s
	}
	if value == "" {
		return "", "", "", "", fmt.Errorf("%s has no value", name)
	}
	return name, op, value, rest, nil
}

func (f *filter) add(name, op, value string) error {
	only := func(want string) error {
		if op != want {
			return fmt.Errorf("%s takes %s, not %s", name, want, op)
		}
		return nil
	}
	switch {
	case name == "status" || name == "state":
		n, err := enumValue(runv1.RunStatus_value, "RUN_STATUS_", value)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		f.cond("r.status = ?", n)
		return only("=")
	case name == "phase":
		n, err := enumValue(runv1.RunPhase_value, "RUN_PHASE_", value)
		if err != nil {
			return fmt.Errorf("phase: %w", err)
		}
		f.cond("r.phase = ?", n)
		return only("=")
	case name == "tenant":
		f.cond("r.tenant = ?", value)
		return only("=")
	case name == "tool":
		f.terms = append(f.terms, toolTerm(value))
		return only("=")
	case strings.HasPrefix(name, "label.") && len(name) > len("label."):
		f.terms = append(f.terms, labelTerm(strings.TrimPrefix(name, "label."), value))
		return only("=")
	case name == "goal":
		f.cond(`r.goal LIKE ? ESCAPE '\'`, "%"+strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`).Replace(value)+"%")
		return only("~")
	case name == "submitted" || name == "updated":
		at, err := parseTime(value)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if !slices.Contains([]string{"<", "<=", ">", ">="}, op) {
			return fmt.Errorf("%s takes > >= < <=, not %s", name, op)
		}
		f.cond("r."+name+"_at "+op+" ?", at)
		return nil
	}
	return fmt.Errorf("unknown term %q; %s", shorten(name, 40), filterHelp)
}

func (f *filter) cond(where string, arg any) {
	f.where, f.args = append(f.where, where), append(f.args, arg)
}

// enumValue finds a value by its short name.
func enumValue(values map[string]int32, prefix, name string) (int64, error) {
	if n, ok := values[prefix+strings.ToUpper(name)]; ok && n != 0 && name == strings.ToLower(name) {
		return int64(n), nil
	}
	known := make([]string, 0, len(values))
	for k, n := range values {
		if n != 0 {
			known = append(known, strings.ToLower(strings.TrimPrefix(k, prefix)))
		}
	}
	slices.Sort(known)
	return 0, fmt.Errorf("%q is not one of %s", shorten(name, 40), strings.Join(known, ", "))
}

func parseTime(value string) (int64, error) {
	for _, layout := range []string{time.RFC3339Nano, time.DateOnly} {
		if t, err := time.Parse(layout, value); err == nil {
			if t.Year() < 1970 || t.Year() > 2261 {
				return 0, fmt.Errorf("%s is outside the years 1970 to 2261", value)
			}
			return t.UnixNano(), nil
		}
	}
	return 0, fmt.Errorf("%q is not a time such as 2026-01-02 or 2026-01-02T15:04:05Z", shorten(value, 40))
}

// runKey is a place in the order of lists: newest first, then by id.
type runKey struct {
	submitted int64
	runID     string
}

// query selects at most limit runs after a place.
func (f filter) query(after *runKey, limit int) (string, []any) {
	var q strings.Builder
	var args []any
	q.WriteString("SELECT " + summaryColumns + " FROM ")
	order := "r"
	var where []string
	if len(f.terms) > 0 {
		// The first term drives: its rows are in the order of lists.
		order = "t"
		q.WriteString("run_terms t CROSS JOIN runs r ON r.run_id = t.run_id")
		where, args = append(where, "t.term = ?"), append(args, f.terms[0])
		for _, term := range f.terms[1:] {
			where = append(where, "EXISTS (SELECT 1 FROM run_terms x WHERE x.term = ? AND x.submitted_at = t.submitted_at AND x.run_id = t.run_id)")
			args = append(args, term)
		}
	} else {
		q.WriteString("runs r")
	}
	where, args = append(where, f.where...), append(args, f.args...)
	if after != nil {
		where = append(where, fmt.Sprintf("(%s.submitted_at, %s.run_id) < (?, ?)", order, order))
		args = append(args, after.submitted, after.runID)
	}
	if len(where) > 0 {
		q.WriteString(" WHERE " + strings.Join(where, " AND "))
	}
	fmt.Fprintf(&q, " ORDER BY %s.submitted_at DESC, %s.run_id DESC LIMIT ?", order, order)
	return q.String(), append(args, limit)
}

// shorten cuts a text for an error message, at a rune border.
func shorten(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit] + "…"
}
