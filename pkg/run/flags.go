package run

// flags say what a step or ledger entry wants. They are derived, never stored, and not part of the hash.
type flags uint16

const (
	// wantsJudging: something came back, and the step does not know it yet.
	wantsJudging flags = 1 << iota
	// wantsLook: all dependencies are terminal, and whether it runs depends on more than that; costs no slot.
	wantsLook
	// wantsSlot: it can start as soon as an action may.
	wantsSlot
	// isFatal: it failed, and the run fails with it.
	isFatal
	// wantsUndo: it failed, and what is committed is to be undone.
	wantsUndo
	// wantsReplan: it failed, and a replan is to say what becomes of it.
	wantsReplan
	// isIdle: not terminal, and no action of it is under way.
	isIdle
	// isLost: a step that must run was skipped because what it depends on failed.
	isLost
	// isRequired: not terminal, and not optional.
	isRequired
	// isFinish: a finish step that succeeded.
	isFinish
	// isOpen: a step that is not terminal, an action under way, an open request.
	isOpen
	// isFailedItem: an item of a for_each step that failed.
	isFailedItem
	// isRevocable: an action owed that must not be repeated.
	isRevocable
)

func flagIf(c bool, f flags) flags {
	if c {
		return f
	}
	return 0
}
