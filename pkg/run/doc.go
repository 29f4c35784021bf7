// Package run is the pure core: it judges reports, decides what follows, and folds events into a run's state. It has no
// clock, no randomness, no goroutine, no I/O, no logging, and depends on no map's order. Whoever owns a run drives it:
//
//	s := run.New(runID)                       // or run.Restore(snapshot), or run.Replay(commits, 0)
//	for _, c := range itsCommits {            // recovery is folding
//		for _, e := range run.EventsOf(c) {
//			s = run.Evolve(s, e)
//		}
//	}
//	step := run.Continue(s, now)              // finish what a crash left undecided
//	for {
//		for {
//			if len(step.Events) > 0 {
//				append(run.NewCommit(step.State, step.Events, step.More, now)) // and wait until it is in the log
//			}
//			for _, e := range step.Events {
//				if w := run.WorkFor(step.State, e); w != nil {
//					publish(w)                // only now: nothing is asked for that is not in the log
//				}
//			}
//			s = step.State
//			if !step.More {
//				break
//			}
//			step = run.Continue(s, now)       // the commit was full: go on before anything else of this run
//		}
//		answer(report, run.AnswerFor(s, report, step.Event)) // and acknowledge it
//
//		if d, ok := run.NextDeadline(s); ok {
//			wakeAt(d.At)                      // then the report is TimerDue with d.Timer
//		}
//		report = next()                       // a report, or the timer
//		now = max(clock(), time of the commit before, due of the timer)
//		step = run.Advance(s, report, now)    // Record, Evolve, and Decide until nothing follows
//	}
//
// After a take-over the owner publishes run.Pending(s): what is owed and perhaps was never asked for.
//
// # What holds
//
// A State is a value. Evolve makes a new one, changes none, and shares what did not change: steps and ledger entries
// stand in persistent trees whose nodes know the hash, the earliest deadline and the wants of everything below, so that
// one event costs the logarithm of the plan's size, in Evolve, Decide and Hash.
//
// Time decides nothing. Whether something follows from a state depends on the state alone; the time given to Decide is
// only written into what it decides. Deadlines are derived from the state, and one that is due comes back as a report.
//
// Evolve is total. It applies what an event says and never judges, so that a log folds whatever the rules were that
// wrote it. Decide may change from version to version without harm to open runs; RulesVersion says that it did.
//
// Terminal is absorbing. After it only the effect ledger changes: a late result settles its action.
//
// # Rules that are choices
//
//   - Steps start in plan order, without levels, as long as fewer than max_parallel actions are under way. Conditions,
//     questions, waits and joins need no slot.
//   - A failed optional step counts as terminal. A failed step that a replan left in the plan stays failed: what depends
//     on it is skipped (dependency_failed), and where that was required the run fails at its end.
//   - Without on_failure an execution fault fails the run, and a plan fault asks for a new plan of what remains, unless
//     max_replans is negative: then it fails the run, too. A person's refused approval is not planned around: it fails the run.
//   - A run without input has an empty one, for plans, references and conditions alike.
//   - When a run ends, steps that are open become cancelled, without an event each; one that waits for a new plan has failed.
//   - Every request for a patch counts against max_replans, those that ask again after a refused patch too. A refused patch
//     is asked for once more. An empty patch ends the run (no_progress). The same strategy may be repeated once, as a
//     deliberate second try; coming back to an earlier one with nothing learnt since ends the run (replan_oscillation).
//   - A result may be repeated only with the same content; another one is refused. Of an action that must not be repeated,
//     an error that leaves its outcome open (timeout, transport, delivery_exhausted) is no outcome: it is asked whether it
//     has started. Not started: the attempt failed with timeout. Started, and silent until deadline plus grace: unknown,
//     which is never repeated or patched; a person is asked where on_failure says so, else the run fails. An outcome that
//     becomes known while that question is open withdraws it, and the step is judged by it as if it had come in time.
//   - A result that is not what the plan expects stands in the error, exact, up to MaxResultInDetails: whoever replans needs
//     it.
//   - A planner that does not answer within max_planning_time fails the run and is not asked again: until then the request
//     was there for any planner. One that a person's patch has made needless is only closed.
//   - The idempotency key is the same for every attempt. It changes (by a generation) only where a person or a patch wants
//     the step again after a known outcome, and where retry.on repeats a success whose check failed.
//   - When a run fails, actions owed that must not be repeated are revoked before, so that none begins any more; others may
//     still report, and only the ledger hears of it.
//   - A cancel always works: it waits CancelGrace for what is under way, then gives up on it.
package run
