// Package expect watches what tenants expect of their workflows, and tells them of what is not met and of what is met again.
//
// A workflow is late if the 99th percentile of its lateness, or of the time to the end of its ticks, is above the expected limit. It is
// silent if ticks became due and none succeeded. A pulled workflow has no workers if ticks wait and nobody polls for them. Each of these
// has a row of table unmet_expectation while it lasts ([Watcher.Look]). A workflow that is held, whose schedules are all paused, or whose
// tenant is halted or suspended, is not judged.
//
// Tables: unmet_expectation.
package expect
