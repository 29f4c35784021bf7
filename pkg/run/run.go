package run

// RulesVersion names this core in every commit. It is raised whenever Decide or Evolve changes what it makes of the same
// input; Verify says so where a log was written by another.
const RulesVersion = "3"
