package carillon

// Code is the stable name of what is wrong. Errors are compared with it by errors.Is, as with the sentinels of statuses:
//
//	errors.Is(err, carillon.CodeQuotaExceeded)
//
// The constants are the codes that programs treat in a way of their own. The OpenAPI document lists all codes; later versions of the server
// may add some.
type Code string

// The codes that programs treat in a way of their own.
const (
	CodeCancelled            Code = "cancelled"              // the tick was cancelled: its handler must stop
	CodeEndpointInUse        Code = "endpoint_in_use"        // a workflow names the endpoint
	CodeIdempotencyKeyReused Code = "idempotency_key_reused" // another request had the same idempotency key
	CodeInUse                Code = "in_use"                 // a schedule names the calendar
	CodeInsufficientScope    Code = "insufficient_scope"     // the credential lacks a scope
	CodeInvalidAPIKey        Code = "invalid_api_key"        // the API key is unknown, has expired or was deleted
	CodeInvalidToken         Code = "invalid_token"          // the token has expired or is not valid
	CodeLeaseLost            Code = "lease_lost"             // another worker has the tick, or it has ended
	CodeNeverFires           Code = "never_fires"            // the spec has no coming tick
	CodeNoSubjectZone        Code = "no_subject_zone"        // the spec follows a subject, which has no profile, and there is no fallback zone
	CodeNotPaused            Code = "not_paused"             // only a paused schedule can be resumed
	CodeOutcomeUnknown       Code = "outcome_unknown"        // the change may have been made: read the thing, or repeat a harmless call
	CodeQuotaExceeded        Code = "quota_exceeded"         // Error.Quota names the quota
	CodeRateLimited          Code = "rate_limited"           // Error.Quota names the rate
	CodeRotatedLately        Code = "rotated_lately"         // the secret was rotated within the last hour
	CodeSubjectInUse         Code = "subject_in_use"         // the new name of a subject is taken
	CodeTickEnded            Code = "tick_ended"             // an ended tick cannot be cancelled
	CodeTickNotFailed        Code = "tick_not_failed"        // only a failed tick can be replayed
	CodeTooManyChanges       Code = "too_many_changes"       // a sync would change more than it may: Error.Summary tells what
	CodeUnknownCalendar      Code = "unknown_calendar"       // the spec names a calendar that is not stored
	CodeUnknownTimezone      Code = "unknown_timezone"       // the spec names a zone that the server does not know
	CodeVersionMismatch      Code = "version_mismatch"       // the stored version is not the one of IfMatch
	CodeWorkflowHeld         Code = "workflow_held"          // a held workflow cannot be triggered
)

// Error returns the code as text. It makes a Code a target of errors.Is.
func (c Code) Error() string { return string(c) }
