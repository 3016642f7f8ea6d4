package schedules

import "github.com/carillonhq/carillon/tenants"

// ListQuery is the statement of a first page.
func ListQuery(tenant tenants.ID, f Filter) (sql string, args []any) {
	return f.query(tenant, position{}, 101)
}

// ActStep is a step of an action.
var ActStep = (*Schedules).actStep
