// Package platform shows the engine to the operator of the service, over all tenants: its processes, what waits in them, what its
// watchdog found, and what each tenant used on a day. It shows counts only, never a key, a payload or another row of a tenant.
//
// Tables: it writes none, and reads process, cohort, delayed, chunk, river_job, tenant, daily_use, daily_use_delta and tally.
package platform
