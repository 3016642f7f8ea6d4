package dispatch

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
		"BackfillParams":   reflect.TypeFor[BackfillParams](),
		"BackfillPlan":     reflect.TypeFor[BackfillPlan](),
		"DeadReplayParams": reflect.TypeFor[DeadReplayParams](),
		"DeadFilter":       reflect.TypeFor[DeadFilter](),
		"TriggerParams":    reflect.TypeFor[TriggerParams](),
		"HaltParams":       reflect.TypeFor[HaltParams](),
		"Firing":           reflect.TypeFor[Firing](),
		"TickRecord":       reflect.TypeFor[Tick](),
		"Explanation":      reflect.TypeFor[Explanation](),
		"Attempt":          reflect.TypeFor[Attempt](),
		"TickPage":         reflect.TypeFor[web.ListAnswer[Tick]](),
		"LeaseParams":      reflect.TypeFor[LeaseParams](),
		"HeartbeatParams":  reflect.TypeFor[beatOneBody](),
		"Heartbeat":        reflect.TypeFor[beatOneAnswer](),
		"HeartbeatsParams": reflect.TypeFor[beatBody](),
		"HeartbeatResults": reflect.TypeFor[beatAnswer](),
		"CompleteParams":   reflect.TypeFor[completeBody](),
		"FailParams":       reflect.TypeFor[failBody](),
		"FinishParams":     reflect.TypeFor[finishBody](),
		"FinishResults":    reflect.TypeFor[finishAnswer](),
		"EndpointParams":   reflect.TypeFor[EndpointParams](),
		"Endpoint":         reflect.TypeFor[Endpoint](),
		"EndpointTrial":    reflect.TypeFor[Trial](),
		"Use":              reflect.TypeFor[Use](),
		"UsePage":          reflect.TypeFor[web.ListAnswer[Use]](),
		"Overview":         reflect.TypeFor[Overview](),
		"ScheduleCounts":   reflect.TypeFor[ScheduleCounts](),
		"WorkflowCounts":   reflect.TypeFor[WorkflowCounts](),
		"Ahead":            reflect.TypeFor[forecast.Ahead](),
		"Backlog":          reflect.TypeFor[Backlog](),
		"RunningCounts":    reflect.TypeFor[RunningCounts](),
		"Lateness":         reflect.TypeFor[Lateness](),
		"FailureCounts":    reflect.TypeFor[FailureCounts](),
		"IdleEndpoint":     reflect.TypeFor[EndpointState](),
		"Throttle":         reflect.TypeFor[Throttle](),
		"Event":            reflect.TypeFor[Event](),
		"EndpointPage":     reflect.TypeFor[web.ListAnswer[Endpoint]](),
	} {
		apitest.Struct(t, schema, typ)
	}
}
