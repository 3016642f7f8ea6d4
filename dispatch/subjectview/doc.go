// Package subjectview shows what a subject has, had and will get: an overview of its schedules and ticks, and an explanation of one day.
//
// It writes nothing. It joins what schedules/subjects, schedules, dispatch/history and dispatch/explain know.
package subjectview
