package subjectview_test

import (
	"reflect"
	"testing"

	"github.com/carillonhq/carillon/api/apitest"
	"github.com/carillonhq/carillon/dispatch/subjectview"
	"github.com/carillonhq/carillon/schedules"
)

func TestStructsAreTheContract(t *testing.T) {
	t.Parallel()
	for schema, typ := range map[string]reflect.Type{
		"SubjectOverview": reflect.TypeFor[subjectview.Overview](),
		"SubjectTick":     reflect.TypeFor[subjectview.Tick](),
		"SubjectDay":      reflect.TypeFor[subjectview.Day](),
		"SubjectVerdict":  reflect.TypeFor[subjectview.Verdict](),
		"PlannedTick":     reflect.TypeFor[subjectview.Planned](),
		"ScheduleSummary": reflect.TypeFor[schedules.Summary](),
	} {
		apitest.Struct(t, schema, typ)
	}
}
