package history_test

import (
	"reflect"
	"testing"

	"github.com/carillonhq/carillon/api/apitest"
	"github.com/carillonhq/carillon/dispatch/history"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/schedules/forecast"
)

func TestStructsAreTheContract(t *testing.T) {
	t.Parallel()
	for schema, typ := range map[string]reflect.Type{
		"DeadFilter":     reflect.TypeFor[history.DeadFilter](),
		"DeadGroups":     reflect.TypeFor[history.DeadGroups](),
		"Firing":         reflect.TypeFor[history.Firing](),
		"TickRecord":     reflect.TypeFor[history.Tick](),
		"Attempt":        reflect.TypeFor[history.Attempt](),
		"TickPage":       reflect.TypeFor[web.ListAnswer[history.Tick]](),
		"Use":            reflect.TypeFor[history.Use](),
		"Series":         reflect.TypeFor[history.Series](),
		"SeriesBucket":   reflect.TypeFor[history.Bucket](),
		"UsePage":        reflect.TypeFor[web.ListAnswer[history.Use]](),
		"Overview":       reflect.TypeFor[history.Overview](),
		"ScheduleCounts": reflect.TypeFor[history.ScheduleCounts](),
		"WorkflowCounts": reflect.TypeFor[history.WorkflowCounts](),
		"Ahead":          reflect.TypeFor[forecast.Ahead](),
		"Backlog":        reflect.TypeFor[history.Backlog](),
		"RunningCounts":  reflect.TypeFor[history.RunningCounts](),
		"Lateness":       reflect.TypeFor[history.Lateness](),
		"FailureCounts":  reflect.TypeFor[history.FailureCounts](),
		"IdleEndpoint":   reflect.TypeFor[history.EndpointState](),
		"TailTick":       reflect.TypeFor[history.TailTick](),
		"TailSecond":     reflect.TypeFor[history.TailSecond](),
		"TailGap":        reflect.TypeFor[history.TailGap](),
		"Unmet":          reflect.TypeFor[history.Unmet](),
		"HeldWorkflow":   reflect.TypeFor[history.HeldWorkflow](),
		"Throttle":       reflect.TypeFor[history.Throttle](),
	} {
		apitest.Struct(t, schema, typ)
	}
}
