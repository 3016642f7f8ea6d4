package history

import (
	"reflect"
	"testing"

	"github.com/carillonhq/carillon/api/apitest"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/schedules/forecast"
)

func TestStructsAreTheContract(t *testing.T) {
	t.Parallel()
	for schema, typ := range map[string]reflect.Type{
		"DeadFilter":     reflect.TypeFor[DeadFilter](),
		"DeadGroups":     reflect.TypeFor[DeadGroups](),
		"Firing":         reflect.TypeFor[Firing](),
		"TickRecord":     reflect.TypeFor[Tick](),
		"Attempt":        reflect.TypeFor[Attempt](),
		"TickPage":       reflect.TypeFor[web.ListAnswer[Tick]](),
		"Use":            reflect.TypeFor[Use](),
		"Series":         reflect.TypeFor[Series](),
		"SeriesBucket":   reflect.TypeFor[Bucket](),
		"UsePage":        reflect.TypeFor[web.ListAnswer[Use]](),
		"Overview":       reflect.TypeFor[Overview](),
		"ScheduleCounts": reflect.TypeFor[ScheduleCounts](),
		"WorkflowCounts": reflect.TypeFor[WorkflowCounts](),
		"Ahead":          reflect.TypeFor[forecast.Ahead](),
		"Backlog":        reflect.TypeFor[Backlog](),
		"RunningCounts":  reflect.TypeFor[RunningCounts](),
		"Lateness":       reflect.TypeFor[Lateness](),
		"FailureCounts":  reflect.TypeFor[FailureCounts](),
		"IdleEndpoint":   reflect.TypeFor[EndpointState](),
		"TailTick":       reflect.TypeFor[TailTick](),
		"TailSecond":     reflect.TypeFor[TailSecond](),
		"TailGap":        reflect.TypeFor[TailGap](),
		"Unmet":          reflect.TypeFor[Unmet](),
		"HeldWorkflow":   reflect.TypeFor[HeldWorkflow](),
		"Throttle":       reflect.TypeFor[Throttle](),
	} {
		apitest.Struct(t, schema, typ)
	}
}
