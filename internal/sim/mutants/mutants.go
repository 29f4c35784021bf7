package main

// mutant is one planted fault: snippets of the source replaced by others. Each snippet stands exactly once in its file; one
// that does not is an error that names the mutant, so that the list follows the source.
type mutant struct {
	name string
	// breaks says what goes wrong with it.
	breaks string
	edits  []edit
}

// edit replaces a snippet of a file, whose path is from the module's root.
type edit struct{ file, old, new string }

// The files that are changed.
const (
	control   = "pkg/run/control.go"
	deadline  = "pkg/run/deadline.go"
	decide    = "pkg/run/decide.go"
	element   = "pkg/run/element.go"
	evolve    = "pkg/run/evolve.go"
	evAction  = "pkg/run/evolve_action.go"
	judge     = "pkg/run/judge.go"
	lifecycle = "pkg/run/lifecycle.go"
	record    = "pkg/run/record.go"
	recPlan   = "pkg/run/record_plan.go"
	recResult = "pkg/run/record_result.go"
	replan    = "pkg/run/replan.go"
	schedule  = "pkg/run/schedule.go"
	snapshot  = "pkg/run/snapshot.go"
	state     = "pkg/run/state.go"
	patch     = "pkg/plan/patch.go"

	journal  = "internal/sim/journal.go"
	owner    = "internal/sim/owner.go"
	takeover = "internal/sim/takeover.go"
	work     = "internal/sim/work.go"
)

// mutants of the owner's loop and of what is around the core, then of the core.
func mutants() []mutant { return append(around(), core()...) }

func around() []mutant {
	return []mutant{
		{"acknowledge_before_append", "a report is acknowledged when it is judged, and lost with its owner", []edit{{owner,
			"if m != nil {\n\t\to.fill.reports = append(o.fill.reports, judged{m, answer})\n\t}",
			"if m != nil {\n\t\to.answer(judged{m, answer})\n\t}"}}},
		{"no_expected_sequence", "the log takes every append, whoever wrote before", []edit{{journal,
			"if len(j.groups) != expected {", "if false {"}}},
		{"speculative_repeat_acknowledged", "a repeat of what is not in the log yet is acknowledged at once", []edit{{owner,
			"case r.group <= o.settled:", "case true:"}}},
		{"last_instead_of_next", "after a lost answer the log's last group is compared, not the one that follows", []edit{{owner,
			"o.w.log.next(expected)", "o.w.log.next(len(o.w.log.groups) - 1)"}}},
		{"conflict_taken_for_stored", "a conflicting append is taken for one's own", []edit{{owner,
			"result := conflict\n", "result := appended\n"}}},
		{"effects_of_a_refused_append", "an owner that was paused and deposed publishes what it had decided", []edit{{owner,
			"if result == conflict {\n\t\tw.stats.deposed++", "if result == conflict && w.chance(0) {\n\t\tw.stats.deposed++"}}},
		{"expired_work_executed", "work that is published late, after a pause, is executed all the same", []edit{{work,
			"late := stale || w.now.After(c.GetNotAfter().AsTime())", "late := stale && w.chance(0)"}}},
		{"claim_after_effect", "the start is claimed when the effect has happened", []edit{
			{work, "if !c.GetIdempotent() {\n\t\tstate := \"executed\"", "if !c.GetIdempotent() && late {\n\t\tstate := \"executed\""},
			{work, "o := w.execute(action, c)\n", "o := w.execute(action, c)\n\t\tw.claim(action, \"executed\")\n"}}},
		{"revocation_without_claim", "a revocation says revoked, whoever has claimed the start", []edit{{work,
			"if w.claim(action, \"revoked\") || w.tool.claims[action] == \"revoked\" {", "if w.claim(action, \"revoked\") || true {"}}},
		{"takeover_without_decide", "a take-over does not finish what a crash left undecided", []edit{{takeover,
			"r.more = true\n\t\to.unfinished = append(o.unfinished, r)", "r.more = false"}}},
		{"takeover_without_owed_work", "a take-over does not publish what its predecessor may not have published", []edit{{takeover,
			"o.owed() })", "_ = o.owed })"}}},
		{"takeover_without_timers", "a take-over sets no alarms", []edit{
			{takeover, "o.schedule(r)\n\t}\n\to.flush()", "}\n\to.flush()"},
			{owner, "o.judge(r, m, m.report)\n\t}\n\to.schedule(r)", "o.judge(r, m, m.report)\n\t}"}}},
		{"checkpoint_skips_a_group", "a take-over reads the log from one group after its checkpoint", []edit{{takeover,
			"from = c.groups\n", "from = c.groups + 1\n"}}},
		{"early_alarm_forgotten", "an alarm that rings before its time, after a step of the clock, is not set again", []edit{{owner,
			"if due.After(o.clock()) {\n\t\to.schedule(r)", "if due.After(o.clock()) {"}}},
		{"commit_time_before_due", "a commit's time is the clock's, though it takes up a later deadline", []edit{{owner,
			"range []time.Time{r.last, due}", "range []time.Time{r.last}"}}},
		{"report_between_commits", "a report is judged before the commit that has more after it is finished", []edit{{owner,
			"if r.more {\n\t\tif m != nil {", "if r.more && r.id == \"\" {\n\t\tif m != nil {"}}},
	}
}

func core() []mutant {
	return []mutant{
		{"result_repeat_unknown", "the same result again is not known for a repeat", []edit{{recResult,
			"st.GetObservationDigest() == digest || tellsNothing(st, o)", "tellsNothing(st, o)"}}},
		{"submit_repeat_unknown", "the same submission again is not known for a repeat", []edit{{record,
			"case body == d.bodyDigest && report.GetTenant() == d.tenant:", "case body == \"\" && report.GetTenant() == d.tenant:"}}},
		{"plan_repeat_unknown", "the same proposal again is not known for a repeat", []edit{{recPlan,
			"case r.GetReportDigest() == digest:", "case r.GetReportDigest() == \"?\":"}}},
		{"refused_twice", "the same refused report is recorded each time", []edit{{record,
			"if r.GetDigest() == v.digest {", "if r.GetDigest() == \"?\" {"}}},
		{"strangers_heard", "a report of another tenant is judged", []edit{{record,
			"d.revision == 0 || stranger {", "d.revision == 0 || stranger && d.terminal() {"}}},
		{"second_answer_taken", "a second answer replaces the first", []edit{
			{record, "case !u.GetOpen() && u.GetAnswer() != nil:", "case !u.GetOpen() && u.GetAnswer() != nil && d.terminal():"},
			{record, "case !u.GetOpen() || d.status == runv1.RunStatus_RUN_STATUS_CANCELLING:", "case d.status == runv1.RunStatus_RUN_STATUS_CANCELLING:"}}},
		{"terminal_not_absorbing", "reports for a run that has ended are judged as if it went on", []edit{{record,
			"if d.terminal() {\n\t\treturn d.weighClosed(report, digest)", "if d.revision == 0 {\n\t\treturn d.weighClosed(report, digest)"}}},
		{"late_result_in_time", "a result that nobody waits for is taken for one in time", []edit{{recResult,
			"Late: !d.current(st) && !d.clears(st, o)", "Late: false"}}},
		{"retry_id_without_attempt", "every attempt has the same action id", []edit{{state,
			"+ \"-\" + strconv.Itoa(int(attempt))", "+ \"-\" + strconv.Itoa(int(min(attempt, 1)))"}}},
		{"key_with_attempt", "every attempt has another idempotency key", []edit{{schedule,
			"resolved.Arguments, st.GetGeneration())", "resolved.Arguments, st.GetGeneration()+attempt)"}}},
		{"key_of_the_call_before", "a deliberate repeat of a known outcome has the key of the call before", []edit{{evAction,
			"outcomeKnown(a) {\n\t\tst.Generation++", "outcomeKnown(a) {\n\t\tst.Generation += 0"}}},
		{"retry_beyond_max", "one attempt more than max_attempts", []edit{{judge,
			"if made >= r.GetMaxAttempts() ||", "if made > r.GetMaxAttempts() ||"}}},
		{"backoff_one_too_far", "the wait grows one attempt too early", []edit{{judge,
			"for range made - 1 {", "for range made {"}}},
		{"timeout_repeated_blindly", "what must not be repeated is, after a timeout", []edit{{judge,
			"case runv1.ActionStatus_ACTION_STATUS_TIMED_OUT:\n\t\tif !a.GetIdempotent() {", "case runv1.ActionStatus_ACTION_STATUS_TIMED_OUT:\n\t\tif !a.GetIdempotent() && d.terminal() {"}}},
		{"unknown_repeated_blindly", "an action of unknown outcome is repeated as after a timeout", []edit{
			{judge, "e := fault(codeUnknownOutcome, ", "e := fault(codeTimeout, "},
			{judge, "return x.failStep(d, p, step, cause, \"unknown_outcome\", e, nil)", "return x.retryOrFail(d, p, st, step, cause, e)"}}},
		{"revoked_is_success", "an action that was revoked counts as executed", []edit{{evAction,
			"a.Status = runv1.ActionStatus_ACTION_STATUS_REVOKED\n", "a.Status = runv1.ActionStatus_ACTION_STATUS_SUCCEEDED\n"}}},
		{"failure_without_revocation", "a run fails and leaves actions that may still begin", []edit{{decide,
			"if e := x.revokeOwed(d, cause, \"run_failed\"); e != nil {", "if e := x.revokeOwed(d, cause, \"run_failed\"); e != nil && d.terminal() {"}}},
		{"join_off_by_one", "a step begins when all but one of its dependencies have ended", []edit{{element,
			"if e.waiting == 0 ||", "if e.waiting <= 1 ||"}}},
		{"skip_not_propagated", "a step begins although what it depends on is lost", []edit{{schedule,
			"if lost := d.lostDependency(i); lost != \"\" {", "if lost := d.lostDependency(i); lost != \"\" && d.terminal() {"}}},
		{"condition_ignored", "a step begins although its condition is false", []edit{{schedule,
			"case !ok:\n\t\t\treturn x.skip(", "case !ok && d.terminal():\n\t\t\treturn x.skip("}}},
		{"confirm_ignored", "an action is asked for without the approval that it needs", []edit{{schedule,
			"if step.GetConfirm() && !st.GetApproved() &&", "if step.GetConfirm() && d.terminal() &&"}}},
		{"optional_fails_the_run", "the failure of an optional step fails the run", []edit{{judge,
			"case step.GetOptional():\n", "case step.GetOptional() && d.terminal():\n"}}},
		{"max_parallel_off_by_one", "one action more than max_parallel is under way", []edit{{state,
			"return d.limits.maxParallel - int(", "return d.limits.maxParallel + 1 - int("}}},
		{"max_steps_off_by_one", "one action more than max_steps", []edit{{state,
			"if int64(d.actions.len()) >= d.limits.maxSteps {", "if int64(d.actions.len()) > d.limits.maxSteps {"}}},
		{"plan_attempts_off_by_one", "one plan more is asked for than max_plan_attempts", []edit{{replan,
			"if r.GetAttempt() >= d.limits.maxPlanAttempts {", "if r.GetAttempt() > d.limits.maxPlanAttempts {"}}},
		{"max_replans_off_by_one", "one patch more is asked for than max_replans", []edit{{replan,
			"if d.replans >= d.limits.maxReplans {", "if d.replans > d.limits.maxReplans {"}}},
		{"replan_does_not_hold", "steps begin while the plan of what remains is being made anew", []edit{{schedule,
			"case last.st.GetOpen() && last.st.GetScope() == runv1.ReplanScope_REPLAN_SCOPE_REMAINING:", "case last.st.GetOpen() && d.terminal():"}}},
		{"patch_of_finished_steps", "a patch may change what has ended", []edit{{recPlan,
			"if stepTerminal(st.GetStatus()) {\n\t\treturn plan.Finished", "if stepTerminal(st.GetStatus()) {\n\t\treturn plan.Open"}}},
		{"patch_of_another_version", "a patch made for an older version is applied", []edit{{patch,
			"if base.GetVersion() != patch.GetBaseVersion() {", "if base.GetVersion() < patch.GetBaseVersion() {"}}},
		{"for_each_order", "the results of items come in another order", []edit{{judge,
			"results[i] = el.st.GetResult()", "results[len(results)-1-i] = el.st.GetResult()"}}},
		{"join_drops_one", "a join leaves out its last dependency", []edit{{control,
			"for k, dep := range deps {", "for k, dep := range deps[:max(len(deps)-1, 0)] {"}}},
		{"item_judged_too_early", "a for_each step is planned anew while items are under way", []edit{{judge,
			"k := items.first(isFatal)", "k := min(items.first(isFatal), -1)"}}},
		{"compensation_oldest_first", "what is committed is undone in the order in which it was done", []edit{{lifecycle,
			"st.GetRevision() > best.GetRevision()", "st.GetRevision() < best.GetRevision()"}}},
		{"compensation_too_early", "what is committed is undone while actions are under way", []edit{{lifecycle,
			"if d.actions.sum().open > 0 {\n\t\treturn nil\n\t}\n\tif i := d.undo", "if d.actions.sum().open > 1000 {\n\t\treturn nil\n\t}\n\tif i := d.undo"}}},
		{"cancel_leaves_steps", "a cancelled run ends and says nothing of steps that were waiting", []edit{{lifecycle,
			"if p, ok := d.first(isIdle); ok {", "if p, ok := d.first(isIdle); ok && d.terminal() {"}}},
		{"lost_timer", "nobody is woken when a question's time is up", []edit{{deadline,
			"if i := d.inputs.earliest(); i >= 0 {", "if i := d.inputs.earliest(); i >= 0 && d.terminal() {"}}},
		{"timer_fires_twice", "a wait step's timer is set again when it has fired", []edit{{evolve,
			"st.TimerFired, st.Due, st.Revision = true, nil, d.revision", "st.TimerFired, st.Revision = false, d.revision"}}},
		{"time_decides", "a run fails when its time is up, whether or not that is in the log", []edit{{decide,
			"case d.deadlineRevision != 0:", "case d.deadlineRevision != 0 || d.deadline != nil && x.now.After(timeOf(d.deadline)):"}}},
		{"evolve_changes_its_argument", "folding an event changes the state before it", []edit{{evolve,
			"st := copyStep(old.st)\n\tchange(st)", "st := old.st\n\tchange(st)"}}},
		{"hash_misses_attempts", "two states that differ in a step's attempts have one hash", []edit{{element,
			"w = w.int(int64(st.GetAttempts()))\n", ""}}},
		{"hash_misses_started", "two states that differ in whether an action has started have one hash", []edit{{element,
			"w = w.bool(st.GetStarted())\n", ""}}},
		{"snapshot_drops_plan_revision", "a restored state does not know when its plan was made", []edit{{snapshot,
			"planRevision: m.GetPlanRevision(), ", ""}}},
		{"snapshot_drops_grace", "a restored state does not know that a cancel's grace is over", []edit{{snapshot,
			"cancelGraceOver: m.GetCancelGraceOver(), ", ""}}},
	}
}
