package tenants

// Quotas are the limits of one tenant. The soft limit of each is 80 % of it.
type Quotas struct {
	Schedules               int `json:"schedules" validate:"min=0,max=1000000000"`
	Workflows               int `json:"workflows" validate:"min=0,max=1000000"`
	Subjects                int `json:"subjects" validate:"min=0,max=1000000000"`
	Endpoints               int `json:"endpoints" validate:"min=0,max=1000000"`
	APIKeys                 int `json:"api_keys" validate:"min=0,max=1000000"`
	RequestsPerSecond       int `json:"requests_per_second" validate:"min=1,max=10000000"`
	UpsertsPerSecond        int `json:"upserts_per_second" validate:"min=1,max=10000000"`
	ConcurrentRequests      int `json:"concurrent_requests" validate:"min=1,max=1000000"`
	ConcurrentBulk          int `json:"concurrent_bulk" validate:"min=1,max=1000000"`
	ConcurrentPolls         int `json:"concurrent_polls" validate:"min=1,max=1000000"`
	Leased                  int `json:"leased" validate:"min=1,max=100000000"`
	SmallestIntervalSeconds int `json:"smallest_interval_seconds" validate:"min=1,max=31536000"`
	PayloadBytes            int `json:"payload_bytes" validate:"min=0,max=1048576"`
	StoredBytes             int `json:"stored_bytes" validate:"min=0,max=1000000000000000"`
	SpecBytes               int `json:"spec_bytes" validate:"min=64,max=262144"`
	TicksPerSecond          int `json:"ticks_per_second" validate:"min=1,max=10000000"`
	Running                 int `json:"running" validate:"min=1,max=10000000"`
	RunningPerEndpoint      int `json:"running_per_endpoint" validate:"min=1,max=10000000"`
	ProjectedTicksPerDay    int `json:"projected_ticks_per_day" validate:"min=1,max=1000000000000"`
	TickRetentionDays       int `json:"tick_retention_days" validate:"min=1,max=3650"`
	AttemptRetentionDays    int `json:"attempt_retention_days" validate:"min=1,max=3650"`
	DeadLetterRetentionDays int `json:"dead_letter_retention_days" validate:"min=1,max=3650"`
	AuditRetentionDays      int `json:"audit_retention_days" validate:"min=1,max=3650"`
}

const secondsPerDay = 86_400

// Defaults returns the quotas of a tenant without overrides. The default of projected ticks a day is derived from ticks a second.
func Defaults() Quotas {
	return Quotas{
		Schedules:               1_000_000,
		Workflows:               20_000,
		Subjects:                1_000_000,
		Endpoints:               10,
		APIKeys:                 50,
		RequestsPerSecond:       100,
		UpsertsPerSecond:        1_000,
		ConcurrentRequests:      20,
		ConcurrentBulk:          2,
		ConcurrentPolls:         100,
		Leased:                  10_000,
		SmallestIntervalSeconds: 60,
		PayloadBytes:            65_536,
		StoredBytes:             10 << 30,
		SpecBytes:               4_096,
		TicksPerSecond:          100,
		Running:                 50,
		RunningPerEndpoint:      10,
		ProjectedTicksPerDay:    100 * secondsPerDay,
		TickRetentionDays:       30,
		AttemptRetentionDays:    14,
		DeadLetterRetentionDays: 30,
		AuditRetentionDays:      400,
	}
}

// Wide returns quotas that a test on one machine never reaches: an interval of a second, and no rate or count below 50,000.
func Wide() Quotas {
	q := Defaults()
	q.Schedules, q.Subjects = 10_000_000, 10_000_000
	q.SmallestIntervalSeconds = 1
	q.StoredBytes = 1 << 40
	for _, n := range []*int{
		&q.Workflows, &q.Endpoints, &q.APIKeys, &q.RequestsPerSecond, &q.UpsertsPerSecond, &q.ConcurrentRequests, &q.ConcurrentBulk,
		&q.ConcurrentPolls, &q.Leased, &q.TicksPerSecond, &q.Running, &q.RunningPerEndpoint,
	} {
		*n = max(*n, 50_000)
	}
	q.ProjectedTicksPerDay = secondsPerDay * q.TicksPerSecond
	return q
}
