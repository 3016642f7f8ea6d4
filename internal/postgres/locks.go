package postgres

// LockClass is the first of the two numbers of an advisory lock. The second one says which lock of the class it is.
type LockClass int32

// These are all classes of advisory locks.
const (
	ShardLocks   LockClass = 0x4341_5253 // of shards of cohorts
	SubjectLocks LockClass = 0x4341_5355 // of shares of subjects
	TallyLocks   LockClass = 0x4341_5254 // 0: folding counts; a tenant's id: an exact count of its schedules
	LeaseLocks   LockClass = 0x4341_4c53 // of tenants: parallel polls stay within the quota leased
	ParkLocks    LockClass = 0x4341_524b // of tenants: parking ticks, and ending what they wait for. Triggers of the schema name it too
	TaskLocks    LockClass = 0x4341_5441 // of tasks of upkeep
	StepLocks    LockClass = 0x4341_4f50 // of operations, while one of their steps runs
	AnalyzeLocks LockClass = 0x4341_414e // 0: analyzing new tables
)

// No two classes have the same number: a map with the same key twice does not compile.
var _ = map[LockClass]bool{
	ShardLocks: true, SubjectLocks: true, TallyLocks: true, LeaseLocks: true, ParkLocks: true, TaskLocks: true, StepLocks: true, AnalyzeLocks: true,
}
