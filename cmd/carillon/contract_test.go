package main

import (
	"reflect"
	"testing"

	"github.com/carillonhq/carillon/api/apitest"
	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/web"
	"github.com/carillonhq/carillon/operations"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/bulk"
	"github.com/carillonhq/carillon/schedules/calendars"
	"github.com/carillonhq/carillon/schedules/forecast"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/schedules/subjects"
	"github.com/carillonhq/carillon/tenants"
)

// The tests of dispatch compare its unexported structs.
func TestTheServersStructsAreTheContract(t *testing.T) {
	t.Parallel()
	compare(t, map[string]reflect.Type{
		"Field":               reflect.TypeFor[fault.Field](),
		"Spec":                reflect.TypeFor[calendar.Spec](),
		"Warning":             reflect.TypeFor[calendar.Warning](),
		"Policy":              reflect.TypeFor[policy.Policy](),
		"Delivery":            reflect.TypeFor[policy.Delivery](),
		"ScheduleParams":      reflect.TypeFor[schedules.Params](),
		"BulkLine":            reflect.TypeFor[bulk.Line](),
		"BulkResult":          reflect.TypeFor[bulk.Result](),
		"BulkFault":           reflect.TypeFor[bulk.Fault](),
		"SubjectLine":         reflect.TypeFor[bulk.SubjectLine](),
		"SubjectResult":       reflect.TypeFor[bulk.SubjectResult](),
		"BulkEnd":             reflect.TypeFor[bulk.End](),
		"BulkCut":             reflect.TypeFor[bulk.Cut](),
		"BulkSummary":         reflect.TypeFor[bulk.Summary](),
		"Schedule":            reflect.TypeFor[schedules.Schedule](),
		"ScheduleSummaryPage": reflect.TypeFor[web.ListAnswer[schedules.Summary]](),
		"ZoneList":            reflect.TypeFor[calendars.ZoneList](),
		"ZoneTransitions":     reflect.TypeFor[calendars.ZoneTransitions](),
		"SchedulePage":        reflect.TypeFor[web.ListAnswer[schedules.Schedule]](),
		"ManyParams":          reflect.TypeFor[schedules.ManyParams](),
		"Schedules":           reflect.TypeFor[schedules.ManyAnswer](),
		"SkipParams":          reflect.TypeFor[schedules.SkipParams](),
		"SyncEnd":             reflect.TypeFor[bulk.SyncEnd](),
		"ClockReport":         reflect.TypeFor[forecast.ClockReport](),
		"ClockChange":         reflect.TypeFor[forecast.ClockChange](),
		"ClockEffect":         reflect.TypeFor[forecast.ClockEffect](),
		"ClockSample":         reflect.TypeFor[forecast.ClockSample](),
		"ForecastPeak":        reflect.TypeFor[forecast.ForecastPeak](),
		"ForecastGroup":       reflect.TypeFor[forecast.Group](),
		"ActionPreview":       reflect.TypeFor[schedules.ActionPreview](),
		"ActionParams":        reflect.TypeFor[schedules.ActionParams](),
		"Operation":           reflect.TypeFor[operations.Answer](),
		"OperationPage":       reflect.TypeFor[web.ListAnswer[operations.Answer]](),
		"SubjectParams":       reflect.TypeFor[subjects.SubjectParams](),
		"QuietHours":          reflect.TypeFor[subjects.QuietHours](),
		"Subject":             reflect.TypeFor[subjects.Subject](),
		"SubjectRetiming":     reflect.TypeFor[subjects.SubjectRetiming](),
		"SubjectPage":         reflect.TypeFor[web.ListAnswer[subjects.Subject]](),
		"Erasure":             reflect.TypeFor[subjects.Erasure](),
		"ErasureCounts":       reflect.TypeFor[subjects.ErasureCounts](),
		"RenameParams":        reflect.TypeFor[subjects.RenameParams](),
		"Renamed":             reflect.TypeFor[subjects.Renamed](),
		"CancelParams":        reflect.TypeFor[subjects.CancelParams](),
		"Cancelled":           reflect.TypeFor[subjects.Cancelled](),
		"Cancelling":          reflect.TypeFor[subjects.Cancelling](),
		"Revision":            reflect.TypeFor[schedules.Revision](),
		"RevisionPage":        reflect.TypeFor[web.ListAnswer[schedules.Revision]](),
		"PauseParams":         reflect.TypeFor[schedules.PauseParams](),
		"ResumeParams":        reflect.TypeFor[schedules.ResumeParams](),
		"PreviewParams":       reflect.TypeFor[schedules.PreviewParams](),
		"Preview":             reflect.TypeFor[schedules.Preview](),
		"UpcomingTick":        reflect.TypeFor[schedules.UpcomingTick](),
		"CalendarParams":      reflect.TypeFor[calendars.Params](),
		"NamedCalendar":       reflect.TypeFor[calendars.Calendar](),
		"CalendarPage":        reflect.TypeFor[web.ListAnswer[calendars.Calendar]](),
		"Forecast":            reflect.TypeFor[forecast.Forecast](),
		"ForecastMinute":      reflect.TypeFor[forecast.ForecastMinute](),
		"WorkflowParams":      reflect.TypeFor[schedules.WorkflowParams](),
		"Workflow":            reflect.TypeFor[schedules.Workflow](),
		"WorkflowPage":        reflect.TypeFor[web.ListAnswer[schedules.Workflow]](),
		"Settings":            reflect.TypeFor[schedules.Settings](),
		"SettingsPatch":       reflect.TypeFor[schedules.SettingsParams](),
		"TenantParams":        reflect.TypeFor[tenants.Params](),
		"Tenant":              reflect.TypeFor[tenants.Answer](),
		"ClaimNames":          reflect.TypeFor[tenants.ClaimNames](),
		"SetIssuer":           reflect.TypeFor[tenants.SetIssuer](),
		"IssuersParams":       reflect.TypeFor[tenants.IssuersParams](),
		"Issuers":             reflect.TypeFor[tenants.IssuersAnswer](),
		"AuditEntry":          reflect.TypeFor[tenants.AuditEntry](),
		"AuditPage":           reflect.TypeFor[web.ListAnswer[tenants.AuditEntry]](),
		"ErasingTenant":       reflect.TypeFor[tenants.Erasing](),
		"Quotas":              reflect.TypeFor[tenants.Quotas](),
		"Issuer":              reflect.TypeFor[tenants.Issuer](),
		"APIKeyParams":        reflect.TypeFor[tenants.APIKeyParams](),
		"APIKey":              reflect.TypeFor[tenants.APIKey](),
		"QuotaUses":           reflect.TypeFor[tenants.QuotasAnswer](),
		"QuotaUse":            reflect.TypeFor[tenants.Use](),
		"Self":                reflect.TypeFor[tenants.SelfAnswer](),
		"TokenAnswer":         reflect.TypeFor[tenants.TokenAnswer](),

		"RescheduleParams": reflect.TypeFor[schedules.RescheduleParams](),
	})
}

func compare(t *testing.T, structs map[string]reflect.Type) {
	t.Helper()
	for schema, typ := range structs {
		apitest.Struct(t, schema, typ)
	}
}
