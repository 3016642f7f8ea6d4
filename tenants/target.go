package tenants

import (
	"net/url"
)

// ScheduleTarget returns the audit's name for a schedule: its path, without /v1/.
func ScheduleTarget(workflow, key string) string {
	return "workflows/" + workflow + "/schedules/" + url.PathEscape(key)
}
