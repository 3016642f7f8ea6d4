package schedules

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"strings"

	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/version"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
	"github.com/jackc/pgx/v5/pgconn"
)

// ListQuery returns the statement of a first page.
func ListQuery(tenant tenants.ID, f Filter) (sql string, args []any) {
	return f.query(tenant, Position{}, nil, 101)
}

// LastQuery returns the statement that finds the last row that a first page may look at.
func LastQuery(tenant tenants.ID, f Filter) (sql string, args []any) {
	return f.lastQuery(tenant, Position{})
}

// PageQuery returns the statement of the page behind a cursor.
func (s *Schedules) PageQuery(tenant tenants.ID, f Filter, cursor string) (sql string, args []any, err error) {
	var after Position
	if cursor != "" {
		err = s.Cursors.Open(int32(tenant), fmt.Sprintf("schedules %+v", f), cursor, &after)
	}
	sql, args = f.query(tenant, after, nil, 101)
	return sql, args, err
}

// These statements read schedules by their names.
var (
	OneQuery  = oneRow
	ManyQuery = manyRows
	ByIDQuery = byID
)

// ActStep runs a step of an action.
var ActStep = (*Actions).actStep

// GroupPut is a put that is stored together with others, and GroupAnswer its result.
type GroupPut struct {
	Workflow, Key string
	Params
	Pre version.Precondition
}

type GroupAnswer struct {
	Schedule Schedule
	Made     bool
	Err      error
}

// PutTogether stores puts in one transaction. Like Put, it first makes the checks that need no database.
func (s *Schedules) PutTogether(ctx context.Context, tenant tenants.ID, by string, puts []GroupPut) ([]GroupAnswer, error) {
	answers := make([]GroupAnswer, len(puts))
	quotas, err := s.Quotas(ctx, tenant)
	if err != nil {
		return nil, err
	}
	var items []*Item
	var places []int
	for i, p := range puts {
		d, err := p.Params.read(quotas)
		if err != nil {
			err = fault.Join(err, s.checkSpec(ctx, policy.Name{Tenant: tenant, Workflow: p.Workflow, Key: p.Key}, p.Spec))
		}
		if answers[i].Err = err; err == nil {
			items = append(items, &Item{Workflow: p.Workflow, Key: p.Key, definition: d, pre: p.Pre, whole: true})
			places = append(places, i)
		}
	}
	if len(items) == 0 {
		return answers, nil
	}
	if err := s.storePuts(ctx, change{tenant: tenant, by: by, quotas: quotas}, items); err != nil {
		return nil, err
	}
	for i, it := range items {
		a := &answers[places[i]]
		if it.Result == Failed {
			a.Err = it.Fault
			continue
		}
		a.Schedule, a.Made = it.shown, it.Result == Inserted
	}
	return answers, nil
}

// Misplaced returns the columns of a query for schedules that a scan reads into a field with another name.
func Misplaced(columns []pgconn.FieldDescription) (wrong []string) {
	var r row
	fields := r.fields()
	if len(fields) != len(columns) {
		return []string{fmt.Sprintf("%d columns go to %d fields", len(columns), len(fields))}
	}
	byName := map[string]any{}
	for _, f := range reflect.VisibleFields(reflect.TypeOf(r)) {
		if f.IsExported() {
			name := cmp.Or(f.Tag.Get("db"), strings.ToLower(f.Name))
			byName[strings.ReplaceAll(name, "_", "")] = reflect.ValueOf(&r).Elem().FieldByIndex(f.Index).Addr().Interface()
		}
	}
	for i, c := range columns {
		if byName[strings.ReplaceAll(c.Name, "_", "")] != fields[i] {
			wrong = append(wrong, c.Name)
		}
	}
	return wrong
}
