package plan

import (
	"cmp"
	"slices"
	"strings"
)

// maxNearest bounds the suggestions of one finding.
const maxNearest = 3

// nearest returns the known names that a wrong one may have meant, best first, at most three.
func nearest(wrong string, known []string) []string {
	const longest = 128
	if wrong == "" || len(wrong) > longest {
		return nil
	}
	type candidate struct {
		name  string
		score int
	}
	var found []candidate
	low := strings.ToLower(wrong)
	allowed := max(2, len(low)/3)
	for _, name := range known {
		if name == "" || len(name) > longest {
			continue
		}
		other := strings.ToLower(name)
		d := allowed + 1
		if diff := len(low) - len(other); diff <= allowed && -diff <= allowed {
			d = distance(low, other, allowed)
		}
		switch {
		case d <= allowed && d < max(len(low), len(other)):
		case len(low) >= 3 && len(other) >= 3 && (strings.Contains(other, low) || strings.Contains(low, other) || isSubsequence(low, other)):
			d = allowed + 1
		default:
			continue
		}
		found = append(found, candidate{name, d})
	}
	slices.SortFunc(found, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.score, b.score), strings.Compare(a.name, b.name))
	})
	if len(found) > maxNearest {
		found = found[:maxNearest]
	}
	names := make([]string, len(found))
	for i, c := range found {
		names[i] = c.name
	}
	return names
}

// isSubsequence tells whether short is what is left of long after letters were taken out: "args" of "arguments".
func isSubsequence(short, long string) bool {
	if len(short) == 0 || len(long) == 0 || short[0] != long[0] || len(long) > 4*len(short) {
		return false
	}
	i := 0
	for j := 0; j < len(long) && i < len(short); j++ {
		if short[i] == long[j] {
			i++
		}
	}
	return i == len(short)
}

// distance is the number of single changes (insert, delete, replace, swap of neighbours) between two words, or more
// than limit as soon as it is.
func distance(a, b string, limit int) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		best := row[0]
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
			best = min(best, row[j])
		}
		if best > limit {
			return limit + 1
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}

// didYouMean makes a hint of the nearest names, or falls back to another hint.
func didYouMean(names []string, otherwise string) string {
	if len(names) == 0 {
		return otherwise
	}
	quoted := make([]string, len(names))
	for i, n := range names {
		quoted[i] = quote(n)
	}
	return "did you mean " + strings.Join(quoted, " or ") + "?"
}

// maxListed bounds the names that a hint lists in full.
const maxListed = 12

func listed(names []string) string {
	more := ""
	if len(names) > maxListed {
		names, more = names[:maxListed], ", …"
	}
	return strings.Join(names, ", ") + more
}
