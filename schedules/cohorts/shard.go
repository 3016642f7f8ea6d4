package cohorts

import (
	"hash/fnv"
	"math"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/tenants"
)

// Shards is the number of parts into which all cohorts are divided. Each part is swept under a lock of its own.
const Shards = 64

// LockShard takes the exclusive lock of a shard until the transaction ends. A sweep holds this lock.
func LockShard(b *pgx.Batch, shard int16) {
	b.Queue(`SELECT pg_advisory_xact_lock($1, $2)`, postgres.ShardLocks, int32(shard))
}

// ShareShard takes the shared lock of a shard until the transaction ends. Other
// changes of schedules can hold it at the same time, but no sweep can run.
func ShareShard(b *pgx.Batch, shard int16) {
	b.Queue(`SELECT pg_advisory_xact_lock_shared($1, $2)`, postgres.ShardLocks, int32(shard))
}

// shardSteps lists how many shards (over) the new schedules of a tenant with fewer than upto schedules use. The shards of each step
// include those of the step before.
var shardSteps = []struct {
	over int16
	upto int
}{{1, 2_000}, {4, 20_000}, {16, 200_000}, {Shards, math.MaxInt}}

// ShardsFor returns how many shards the new schedules of a tenant use, if the tenant has so many stored schedules.
func ShardsFor(stored int) int16 {
	for _, s := range shardSteps {
		if stored < s.upto {
			return s.over
		}
	}
	return Shards
}

// PossibleShards returns the shards that may hold a schedule of a tenant whose schedules now go to n shards: one for each number of
// shards that the tenant has had.
func PossibleShards(tenant tenants.ID, n int16, workflow, key string) (all []int16) {
	for _, s := range shardSteps {
		if s.over <= n {
			all = append(all, ShardFor(tenant, s.over, workflow, key))
		}
	}
	return all
}

// ShardFor returns the shard of a new schedule of a tenant whose schedules go to n shards.
func ShardFor(tenant tenants.ID, n int16, workflow, key string) int16 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(workflow))
	_, _ = h.Write([]byte{0})
	_, _ = h.Write([]byte(key))
	first := uint64(tenant) * 0x9E3779B97F4A7C15 >> 32
	step := uint64(Shards / int(n))
	return int16((first + h.Sum64()%uint64(n)*step) % Shards)
}
