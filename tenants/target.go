package tenants

import (
	"net/url"
)

// Target returns what the audit calls a schedule: its path, without /v1/.
func ScheduleTarget(workflow, key string) string {
	return "workflows/" + workflow + "/schedules/" + url.PathEscape(key)
}
