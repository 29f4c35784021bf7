// Package plan is the plan as data: it reads, checks, normalises and patches plan documents, resolves references,
// evaluates conditions and extracts results. It is pure: the same input gives the same output, there is no clock, no
// I/O, no randomness and no map order in any result. Caches hold only what can be computed again.
//
// Messages given to this package are never changed. Messages returned may share parts with those given, so callers
// treat both as immutable.
package plan
