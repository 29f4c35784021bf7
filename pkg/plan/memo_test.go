package plan

import (
	"fmt"
	"sync"
	"testing"
)

func TestMemoForgetsOnlyWhatCanBeComputedAgain(t *testing.T) {
	m := newMemo[int, int](4)
	computed := 0
	get := func(k int) int {
		return m.get(k, func() int { computed++; return k * k })
	}
	for range 3 {
		for k := range 50 {
			if get(k) != k*k {
				t.Fatalf("%d became %d", k, get(k))
			}
		}
	}
	if len(m.young)+len(m.old) > 8 {
		t.Errorf("it holds %d entries", len(m.young)+len(m.old))
	}
	computed = 0
	for range 100 {
		get(1)
		get(2)
	}
	if computed > 2 {
		t.Errorf("what is in use was computed %d times", computed)
	}
}

// Plans are validated and expressions evaluated in many goroutines that share the caches.
func TestCachesAreShared(t *testing.T) {
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 20 {
				if _, findings := Read([]byte(fiveSteps), testEnvironment()); HasErrors(findings) {
					t.Errorf("refused:\n%s", show(findings))
				}
				if ok, err := EvalCheck(fmt.Sprintf("result.x == %d", i), Scope{Result: text(fmt.Sprintf(`{"x":%d}`, i))}); !ok || err != nil {
					t.Errorf("goroutine %d: %v, %v", g, ok, err)
				}
				if findings := ValidateSchema(text(fmt.Sprintf(`{"const":%d}`, i)), text(fmt.Sprint(i))); len(findings) > 0 {
					t.Error(show(findings))
				}
			}
		})
	}
	wg.Wait()
}
