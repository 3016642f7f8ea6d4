package servertest

import (
	"go/ast"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/carillonhq/carillon/api/apitest"
	carillon "github.com/carillonhq/carillon/sdk-go"
)

// structs are the structs of the SDK by the schema whose JSON they read or write.
var structs = map[string]reflect.Type{
	"APIKey":            reflect.TypeFor[carillon.APIKey](),
	"APIKeyParams":      reflect.TypeFor[carillon.APIKeyParams](),
	"ActionFilter":      reflect.TypeFor[carillon.ActionFilter](),
	"ActionParams":      reflect.TypeFor[carillon.ActionParams](),
	"ActionPreview":     reflect.TypeFor[carillon.ActionPreview](),
	"Ahead":             reflect.TypeFor[carillon.Ahead](),
	"AnsweredRequest":   reflect.TypeFor[carillon.AnsweredRequest](),
	"Attempt":           reflect.TypeFor[carillon.Attempt](),
	"AuditEntry":        reflect.TypeFor[carillon.AuditEntry](),
	"BackfillParams":    reflect.TypeFor[carillon.BackfillParams](),
	"BackfillPlan":      reflect.TypeFor[carillon.BackfillPlan](),
	"Backlog":           reflect.TypeFor[carillon.Backlog](),
	"BulkEnd":           reflect.TypeFor[carillon.BulkReport](),
	"BulkFault":         reflect.TypeFor[carillon.BulkFault](),
	"BulkLine":          reflect.TypeFor[carillon.BulkLine](),
	"BulkResult":        reflect.TypeFor[carillon.BulkResult](),
	"BulkSummary":       reflect.TypeFor[carillon.BulkSummary](),
	"Calendar":          reflect.TypeFor[carillon.CalendarFields](),
	"CalendarParams":    reflect.TypeFor[carillon.CalendarParams](),
	"CancelParams":      reflect.TypeFor[carillon.CancelParams](),
	"Cancelled":         reflect.TypeFor[carillon.Cancelled](),
	"ClaimNames":        reflect.TypeFor[carillon.ClaimNames](),
	"ClockChange":       reflect.TypeFor[carillon.ClockChange](),
	"ClockEffect":       reflect.TypeFor[carillon.ClockEffect](),
	"ClockReport":       reflect.TypeFor[carillon.ClockReport](),
	"ClockSample":       reflect.TypeFor[carillon.ClockSample](),
	"DSTPolicy":         reflect.TypeFor[carillon.DST](),
	"DeadFilter":        reflect.TypeFor[carillon.DeadFilter](),
	"DeadGroups":        reflect.TypeFor[carillon.DeadGroups](),
	"DeadReplayParams":  reflect.TypeFor[carillon.DeadReplayParams](),
	"DeadReplayPreview": reflect.TypeFor[carillon.DeadReplayPreview](),
	"Defaults":          reflect.TypeFor[carillon.Defaults](),
	"Delivery":          reflect.TypeFor[carillon.Delivery](),
	"Endpoint":          reflect.TypeFor[carillon.Endpoint](),
	"EndpointHealth":    reflect.TypeFor[carillon.EndpointHealth](),
	"EndpointParams":    reflect.TypeFor[carillon.EndpointParams](),
	"EndpointTrial":     reflect.TypeFor[carillon.EndpointTrial](),
	"ErasingTenant":     reflect.TypeFor[carillon.ErasingTenant](),
	"Erasure":           reflect.TypeFor[carillon.Erasure](),
	"ErasureCounts":     reflect.TypeFor[carillon.ErasureCounts](),
	"Event":             reflect.TypeFor[carillon.Event](),
	"Exclude":           reflect.TypeFor[carillon.Exclude](),
	"Expect":            reflect.TypeFor[carillon.Expect](),
	"Explanation":       reflect.TypeFor[carillon.Explanation](),
	"ExplanationStep":   reflect.TypeFor[carillon.Step](),
	"FailureCounts":     reflect.TypeFor[carillon.FailureCounts](),
	"Field":             reflect.TypeFor[carillon.Field](),
	"Firing":            reflect.TypeFor[carillon.Firing](),
	"Forecast":          reflect.TypeFor[carillon.Forecast](),
	"ForecastGroup":     reflect.TypeFor[carillon.ForecastGroup](),
	"ForecastMinute":    reflect.TypeFor[carillon.ForecastMinute](),
	"ForecastPeak":      reflect.TypeFor[carillon.ForecastPeak](),
	"HaltParams":        reflect.TypeFor[carillon.HaltParams](),
	"HealthMinute":      reflect.TypeFor[carillon.HealthMinute](),
	"HeldWorkflow":      reflect.TypeFor[carillon.HeldWorkflow](),
	"IdleEndpoint":      reflect.TypeFor[carillon.IdleEndpoint](),
	"Interval":          reflect.TypeFor[carillon.Interval](),
	"Issuer":            reflect.TypeFor[carillon.Issuer](),
	"Issuers":           reflect.TypeFor[carillon.Issuers](),
	"IssuersParams":     reflect.TypeFor[carillon.IssuersParams](),
	"Lateness":          reflect.TypeFor[carillon.Lateness](),
	"NamedCalendar":     reflect.TypeFor[carillon.NamedCalendar](),
	"Operation":         reflect.TypeFor[carillon.Operation](),
	"Overview":          reflect.TypeFor[carillon.Overview](),
	"PauseParams":       reflect.TypeFor[carillon.PauseParams](),
	"PlannedTick":       reflect.TypeFor[carillon.PlannedTick](),
	"PlatformOverview":  reflect.TypeFor[carillon.PlatformOverview](),
	"Policy":            reflect.TypeFor[carillon.Policy](),
	"Preview":           reflect.TypeFor[carillon.Upcoming](),
	"PreviewParams":     reflect.TypeFor[carillon.PreviewParams](),
	"QuietHours":        reflect.TypeFor[carillon.QuietHours](),
	"QuotaUse":          reflect.TypeFor[carillon.QuotaUse](),
	"Quotas":            reflect.TypeFor[carillon.Quotas](),
	"Rate":              reflect.TypeFor[carillon.Rate](),
	"Relative":          reflect.TypeFor[carillon.Relative](),
	"RenameParams":      reflect.TypeFor[carillon.RenameParams](),
	"Renamed":           reflect.TypeFor[carillon.Renamed](),
	"RescheduleParams":  reflect.TypeFor[carillon.RescheduleParams](),
	"ResumeParams":      reflect.TypeFor[carillon.ResumeParams](),
	"Retention":         reflect.TypeFor[carillon.Retention](),
	"Revision":          reflect.TypeFor[carillon.Revision](),
	"RunningCounts":     reflect.TypeFor[carillon.RunningCounts](),
	"Sample":            reflect.TypeFor[carillon.Sample](),
	"Schedule":          reflect.TypeFor[carillon.Schedule](),
	"ScheduleCounts":    reflect.TypeFor[carillon.ScheduleCounts](),
	"ScheduleParams":    reflect.TypeFor[carillon.Params](),
	"ScheduleSummary":   reflect.TypeFor[carillon.ScheduleSummary](),
	"Self":              reflect.TypeFor[carillon.Self](),
	"Series":            reflect.TypeFor[carillon.Series](),
	"SeriesBucket":      reflect.TypeFor[carillon.SeriesBucket](),
	"SetIssuer":         reflect.TypeFor[carillon.SetIssuer](),
	"Settings":          reflect.TypeFor[carillon.Settings](),
	"SkipParams":        reflect.TypeFor[carillon.SkipParams](),
	"Spec":              reflect.TypeFor[carillon.Spec](),
	"Stats":             reflect.TypeFor[carillon.Stats](),
	"Subject":           reflect.TypeFor[carillon.Subject](),
	"SubjectDay":        reflect.TypeFor[carillon.SubjectDay](),
	"SubjectLine":       reflect.TypeFor[carillon.SubjectLine](),
	"SubjectOverview":   reflect.TypeFor[carillon.SubjectOverview](),
	"SubjectParams":     reflect.TypeFor[carillon.SubjectParams](),
	"SubjectResult":     reflect.TypeFor[carillon.SubjectResult](),
	"SubjectRetiming":   reflect.TypeFor[carillon.SubjectRetiming](),
	"SubjectTick":       reflect.TypeFor[carillon.SubjectTick](),
	"SubjectVerdict":    reflect.TypeFor[carillon.SubjectVerdict](),
	"SyncEnd":           reflect.TypeFor[carillon.SyncReport](),
	"SyncLine":          reflect.TypeFor[carillon.BulkLine](),
	"SyncSummary":       reflect.TypeFor[carillon.SyncSummary](),
	"TailGap":           reflect.TypeFor[carillon.TailGap](),
	"TailSecond":        reflect.TypeFor[carillon.TailSecond](),
	"TailTick":          reflect.TypeFor[carillon.TailTick](),
	"Tenant":            reflect.TypeFor[carillon.Tenant](),
	"TenantParams":      reflect.TypeFor[carillon.TenantParams](),
	"TenantUse":         reflect.TypeFor[carillon.TenantUse](),
	"Throttle":          reflect.TypeFor[carillon.Throttle](),
	"Tick":              reflect.TypeFor[carillon.Tick[any]](),
	"TickRecord":        reflect.TypeFor[carillon.TickRecord](),
	"TokenAnswer":       reflect.TypeFor[carillon.TokenAnswer](),
	"TriggerParams":     reflect.TypeFor[carillon.TriggerParams](),
	"Unmet":             reflect.TypeFor[carillon.Unmet](),
	"UpcomingTick":      reflect.TypeFor[carillon.UpcomingTick](),
	"Use":               reflect.TypeFor[carillon.Use](),
	"Warning":           reflect.TypeFor[carillon.Warning](),
	"WorkflowCounts":    reflect.TypeFor[carillon.WorkflowCounts](),
	"Workflow":          reflect.TypeFor[carillon.Workflow](),
	"WorkflowParams":    reflect.TypeFor[carillon.WorkflowParams](),
	"Zone":              reflect.TypeFor[carillon.Zone](),
	"ZoneChange":        reflect.TypeFor[carillon.ZoneChange](),
	"ZoneList":          reflect.TypeFor[carillon.ZoneList](),
	"ZoneTransitions":   reflect.TypeFor[carillon.ZoneTransitions](),
}

// knownDifferences are differences between a struct and its schema that are meant, with the reason.
var knownDifferences = map[string]string{
	"PreviewParams.spec ":        "Preview takes the spec as an argument of its own",
	"SyncLine.workflow ":         "Sync and PutAll take the same lines; Sync adds the workflow of its scope to a line without one",
	"SubjectRetiming.operation ": "one type for the answers 200 and 202; nil is the former",
	"Cancelled.operation ":       "one type for the answers 200 and 202; nil is the former",
	"TenantParams.name ":         "the path has it already",
}

// schemasWithoutStruct are schemas that no exported struct stands for, with the reason.
var schemasWithoutStruct = map[string]string{
	"BulkCut":          "it becomes an error: ErrCut with an *Error",
	"Cancelling":       "Cancelled has its operation",
	"CompleteParams":   "arguments of Ticks.Complete",
	"EndpointPatch":    "MergePatch.Merge is any JSON, because null has a meaning that a struct cannot have",
	"EventData":        "Event.Data keeps its bytes, because its members depend on the type of the event",
	"FailParams":       "arguments of Ticks.Fail",
	"FinishItem":       "of the worker alone",
	"FinishParams":     "of the worker alone",
	"FinishResult":     "of the worker alone",
	"FinishResults":    "of the worker alone",
	"Heartbeat":        "Ticks.Heartbeat returns its time",
	"HeartbeatItem":    "of the worker alone",
	"HeartbeatParams":  "arguments of Ticks.Heartbeat",
	"HeartbeatResult":  "of the worker alone",
	"HeartbeatResults": "of the worker alone",
	"HeartbeatsParams": "of the worker alone",
	"Lease":            "Ticks.Lease returns its ticks",
	"LeaseParams":      "carillon.LeaseParams has durations of Go",
	"ManyParams":       "arguments of Schedules.GetMany",
	"Problem":          "carillon.Error",
	"PushResult":       "of the webhook's answer",
	"PushResults":      "of the webhook's answer",
	"QuotaUses":        "Admin.Quotas returns its map",
	"SchedulePatch":    "PatchParams.Merge is any JSON, because null has a meaning that a struct cannot have",
	"Schedules":        "Schedules.GetMany returns its items",
	"SettingsPatch":    "carillon.SettingsPatch.Merge is any JSON, because null has a meaning that a struct cannot have",
	"TenantPatch":      "MergePatch.Merge is any JSON, because null has a meaning that a struct cannot have",
	"WorkflowPatch":    "MergePatch.Merge is any JSON, because null has a meaning that a struct cannot have",
}

// structsInside are structs with JSON whose schema has no name: the document describes them inside another one.
var structsInside = []string{"BucketLateness", "DeadGroup", "Process", "TenantCounts", "ZoneTransition"}

func TestTheSDKsStructsAreTheContract(t *testing.T) {
	t.Parallel()
	for schema, typ := range structs {
		var known []string
		for difference := range knownDifferences {
			if strings.HasPrefix(difference, schema+".") {
				known = append(known, difference)
			}
		}
		apitest.Struct(t, schema, typ, known...)
	}
}

func TestEachSchemaHasAStruct(t *testing.T) {
	t.Parallel()
	names := apitest.New(t).Objects()
	for _, name := range names {
		if strings.HasSuffix(name, "Page") { // lists are iterators over the items of their pages
			continue
		}
		_, excepted := schemasWithoutStruct[name]
		if has := structs[name] != nil; has == excepted {
			t.Errorf("schema %s has a struct: %t, and is an exception: %t", name, has, excepted)
		}
	}
	for name := range schemasWithoutStruct {
		if !slices.Contains(names, name) {
			t.Errorf("the exception %s is not in openapi.yaml", name)
		}
	}
}

// TestEachStructHasASchema finds the exported structs of the SDK that have members in JSON.
func TestEachStructHasASchema(t *testing.T) {
	t.Parallel()
	compared := map[string]bool{}
	for _, typ := range structs {
		name, _, _ := strings.Cut(typ.Name(), "[") // of a generic one
		compared[name] = true
	}
	found := map[string]bool{}
	for _, file := range parsed(t) {
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok || !spec.Name.IsExported() {
				return true
			}
			if typ, ok := spec.Type.(*ast.StructType); ok && inJSON(typ) {
				found[spec.Name.Name] = true
			}
			return true
		})
	}
	for name := range found {
		if compared[name] == slices.Contains(structsInside, name) {
			t.Errorf("struct %s is compared with a schema: %t, and is an exception: %t", name, compared[name], !compared[name])
		}
	}
	if missing := slices.DeleteFunc(slices.Collect(maps.Keys(compared)), func(name string) bool { return found[name] }); len(missing) > 0 {
		t.Errorf("not found in the source: %v", missing)
	}
}
