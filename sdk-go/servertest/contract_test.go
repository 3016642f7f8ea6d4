package servertest

import (
	"reflect"
	"testing"

	"github.com/carillonhq/carillon/api/apitest"
	carillon "github.com/carillonhq/carillon/sdk-go"
)

func TestTheSDKsStructsAreTheContract(t *testing.T) {
	t.Parallel()
	for schema, typ := range map[string]reflect.Type{
		"Field":          reflect.TypeFor[carillon.Field](),
		"Spec":           reflect.TypeFor[carillon.Spec](),
		"Warning":        reflect.TypeFor[carillon.Warning](),
		"Policy":         reflect.TypeFor[carillon.Policy](),
		"Delivery":       reflect.TypeFor[carillon.Delivery](),
		"ScheduleParams": reflect.TypeFor[carillon.Params](),
		"BulkLine":       reflect.TypeFor[carillon.BulkLine](),
		"BulkResult":     reflect.TypeFor[carillon.BulkResult](),
		"BulkFault":      reflect.TypeFor[carillon.BulkFault](),
		"BulkSummary":    reflect.TypeFor[carillon.BulkSummary](),
		"Schedule":       reflect.TypeFor[carillon.Schedule](),
		"SkipParams":     reflect.TypeFor[carillon.SkipParams](),
		"Revision":       reflect.TypeFor[carillon.Revision](),
		"SubjectParams":  reflect.TypeFor[carillon.SubjectParams](),
		"QuietHours":     reflect.TypeFor[carillon.QuietHours](),
		"Subject":        reflect.TypeFor[carillon.Subject](),
		"Operation":      reflect.TypeFor[carillon.Operation](),
		"Erasure":        reflect.TypeFor[carillon.Erasure](),
		"ErasureCounts":  reflect.TypeFor[carillon.ErasureCounts](),
		"PauseParams":    reflect.TypeFor[carillon.PauseParams](),
		"ResumeParams":   reflect.TypeFor[carillon.ResumeParams](),
		"TriggerParams":  reflect.TypeFor[carillon.TriggerParams](),
		"Preview":        reflect.TypeFor[carillon.Upcoming](),
		"Tick":           reflect.TypeFor[carillon.Tick[any]](),
		"TickRecord":     reflect.TypeFor[carillon.TickRecord](),
		"Attempt":        reflect.TypeFor[carillon.Attempt](),
		"WorkflowParams": reflect.TypeFor[carillon.WorkflowParams](),
		"Workflow":       reflect.TypeFor[carillon.Workflow](),
		"EndpointParams": reflect.TypeFor[carillon.EndpointParams](),
		"Endpoint":       reflect.TypeFor[carillon.Endpoint](),
		"EndpointTrial":  reflect.TypeFor[carillon.EndpointTrial](),
		"Event":          reflect.TypeFor[carillon.Event](),

		"RescheduleParams": reflect.TypeFor[carillon.RescheduleParams](),
		"ExplanationStep":  reflect.TypeFor[carillon.Step](),
		"ActionParams":     reflect.TypeFor[carillon.ActionParams](),
		"ActionFilter":     reflect.TypeFor[carillon.ActionFilter](),
		"Explanation":      reflect.TypeFor[carillon.Explanation](),
	} {
		apitest.Struct(t, schema, typ)
	}
}
