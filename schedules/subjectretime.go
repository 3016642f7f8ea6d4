package schedules

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/carillonhq/carillon/calendar"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/operations"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
	"github.com/jackc/pgx/v5"
)

// mostFollowers is how many schedules of a subject are retimed in the transaction that changes its profile. More are retimed by an
// operation, followerStep of them in a step: the shards that the schedules lie in are locked meanwhile, and no sweep of them can begin.
const (
	mostFollowers = 500
	followerStep  = 200
)

// retimeSubjectKind is the kind of operation that a change of a profile begins when many schedules follow it.
const retimeSubjectKind = "retime_subject"

// subjectRetiming holds the params of such an operation. The subject is read from the operation's own column, which a rename changes.
type subjectRetiming struct {
	Subject  string `json:"subject"`
	Timezone string `json:"timezone"`
}

// follower is a schedule that follows the profile of its subject.
type follower struct {
	ID    int64
	Shard int16
}

// followersOf returns the schedules that follow a subject, by id, at most limit after one.
func followersOf(ctx context.Context, tx pgx.Tx, tenant tenants.ID, subject string, after int64, limit int) ([]follower, error) {
	rows, _ := tx.Query(ctx, `
		SELECT id, shard
		FROM schedule
		WHERE tenant_id = $1 AND CASE WHEN subject IS NULL THEN key ELSE subject END = $2 AND by_subject AND id > $3
		ORDER BY id
		LIMIT $4`, tenant, subject, after, limit) // CollectRows reports the error
	found, err := pgx.CollectRows(rows, pgx.RowToStructByPos[follower])
	if err != nil {
		return nil, fmt.Errorf("look for the schedules of a subject: %w", err)
	}
	return found, nil
}

// RetimeSubject retimes the schedules that follow a subject, from now on, by its profile, or begins the operation that does. The
// caller has written the profile, and holds the subject's lock, so that no schedule begins to follow the profile as it was.
func (s *Schedules) RetimeSubject(ctx context.Context, tx pgx.Tx, tenant tenants.ID, subject, zone, by string) (*operations.Answer, error) {
	found, err := followersOf(ctx, tx, tenant, subject, 0, mostFollowers+1)
	if err != nil {
		return nil, err
	}
	if len(found) <= mostFollowers {
		_, err := s.retimeFollowers(ctx, tx, tenant, found, by)
		return nil, err
	}
	var total int64
	if err := tx.QueryRow(ctx, `SELECT count(*) FROM schedule WHERE tenant_id = $1 AND CASE WHEN subject IS NULL THEN key ELSE subject END = $2 AND by_subject`, tenant, subject).Scan(&total); err != nil {
		return nil, fmt.Errorf("count the schedules of a subject: %w", err)
	}
	op, err := s.Operations.Begin(ctx, tx, operations.Request{
		Tenant: tenant, Kind: retimeSubjectKind, Params: subjectRetiming{subject, zone}, Subject: subject, Total: &total, By: by,
	})
	return &op, err
}

// retimeSubjectStep retimes the next schedules that follow a subject, by its present profile.
func (s *Schedules) retimeSubjectStep(ctx context.Context, tx pgx.Tx, op *operations.Operation) (done bool, err error) {
	var after int64
	if _, err := op.Read(nil, &after); err != nil {
		return false, err
	}
	subject, err := LockOperationSubject(ctx, tx, op, cohorts.ToFollow)
	if err != nil || subject == "" {
		return err == nil, err
	}
	found, err := followersOf(ctx, tx, op.Tenant, subject, after, followerStep)
	if err != nil || len(found) == 0 {
		return err == nil, err
	}
	retimed, err := s.retimeFollowers(ctx, tx, op.Tenant, found, op.By)
	if err != nil {
		return false, err
	}
	op.Done += int64(len(found))
	op.Count("retimed", int64(retimed))
	op.Count("unchanged", int64(len(found)-retimed))
	return len(found) < followerStep, op.Keep(found[len(found)-1].ID)
}

// LockOperationSubject locks the subject of an operation against renames, to follow it or to change it, and returns it; empty: it was
// erased.
func LockOperationSubject(ctx context.Context, tx pgx.Tx, op *operations.Operation, how string) (string, error) {
	read := func() (subject string, err error) {
		err = tx.QueryRow(ctx, `SELECT COALESCE(subject, '') FROM operation WHERE tenant_id = $1 AND id = $2`, op.Tenant, op.ID).Scan(&subject)
		if err != nil {
			return "", fmt.Errorf("read the subject of an operation: %w", err)
		}
		return subject, nil
	}
	subject, err := read()
	for err == nil && subject != "" {
		if err := cohorts.LockSubjects(ctx, tx, op.Tenant, how, subject); err != nil {
			return "", err
		}
		locked := subject
		if subject, err = read(); subject == locked {
			break
		}
	}
	return subject, err
}

// retimeFollowers retimes schedules that follow a subject, and returns how many have another timing now.
func (s *Schedules) retimeFollowers(ctx context.Context, tx pgx.Tx, tenant tenants.ID, followers []follower, by string) (int, error) {
	if len(followers) == 0 {
		return 0, nil
	}
	ids, shards := make([]int64, len(followers)), map[int16]bool{}
	for i, f := range followers {
		ids[i], shards[f.Shard] = f.ID, true
	}
	if err := LockRows(ctx, tx, tenant, slices.Sorted(maps.Keys(shards)), ids); err != nil {
		return 0, err
	}
	b := s.newBatch(tx, change{tenant: tenant, by: by})
	rows, err := b.readFollowers(ctx, ids)
	if err != nil {
		return 0, err
	}
	if err := b.prepare(ctx, rows, nil); err != nil {
		return 0, err
	}
	for _, r := range rows {
		if err := b.retimeFollower(ctx, r); err != nil {
			return 0, err
		}
	}
	return len(b.writes.rows), b.write(ctx)
}

// LockRows locks shards, shared, and then schedules that lie in them.
func LockRows(ctx context.Context, tx pgx.Tx, tenant tenants.ID, shards []int16, ids []int64) error {
	var b pgx.Batch
	b.Queue(`SELECT pg_advisory_xact_lock_shared($1, shard) FROM unnest($2::smallint[]) AS s (shard)`, postgres.ShardLocks, shards)
	b.Queue(`SELECT id FROM schedule WHERE tenant_id = $1 AND id = ANY($2) ORDER BY id FOR UPDATE`, tenant, ids)
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		return fmt.Errorf("lock schedules: %w", err)
	}
	return nil
}

// readFollowers reads the locked schedules that still follow their key, and the clock.
func (b *batch) readFollowers(ctx context.Context, ids []int64) ([]*row, error) {
	var q pgx.Batch
	q.Queue(`SELECT `+rowColumns+` FROM `+rowTables+` WHERE s.tenant_id = $1 AND s.id = ANY($2) AND s.by_subject`, b.tenant, ids)
	q.Queue(`SELECT ` + postgres.Now)
	results := b.tx.SendBatch(ctx, &q)
	defer results.Close()
	rows, err := b.collect(results)
	if err != nil {
		return nil, err
	}
	return rows, results.Close()
}

// retimeFollower moves a member of a cohort to the one of its timing by the profile of its key. Its definition and version stay. A
// schedule that fires once a day, and has another zone now, fires no sooner than some hours after it last did.
func (b *batch) retimeFollower(ctx context.Context, r *row) error {
	if r.CohortID == nil || r.Profile().Zone == "" { // it is timed when it fires again; without any zone it keeps the one that it has
		return nil
	}
	before, err := r.timing(ctx, b.tx, b.schedules.Timings, b.tenant)
	if err != nil && !errors.Is(err, cohorts.ErrUncomputable) {
		return err
	}
	after, err := b.schedules.Timings.CompileStored(ctx, b.tx, r.stored(b.tenant))
	if err != nil && !errors.Is(err, cohorts.ErrUncomputable) {
		return err
	}
	if before != nil && after != nil && before.Hash() == after.Hash() {
		return nil
	}
	w := &rewrite{row: r, quiet: true}
	b.writes.rows = append(b.writes.rows, w)
	r.TZData = calendar.InForce().Version()
	due := len(b.writes.due)
	b.leave(r, before)
	if after == nil {
		r.Status, r.PausedAt, r.PausedUntil, r.PausedBy = policy.Quarantined, nil, nil, nil
		r.StatusNote = new("its spec cannot be computed in the zone of its key")
		return nil
	}
	for i := range b.writes.due[due:] {
		run := &b.writes.due[due+i].Run
		if _, _, quiet := after.QuietHours(b.now); !quiet && before.Waits(run.At) { // a tick that waited need not wait any longer
			run.Quiet = false
		}
	}
	r.first = after.FirstAt(r.CreatedAt)
	from := b.now
	if r.Status == policy.Paused {
		from = r.PausedUntil.Add(-time.Second)
	}
	if err := b.rejoin(ctx, w, b.schedules.Timings.Keep(b.tenant, after, nil), from); err != nil {
		return err
	}
	if before != nil && before.Zone() != after.Zone() && after.Recurs() && after.OnceADay(b.now) {
		b.writes.rezoned = append(b.writes.rezoned, r.ID)
	}
	return nil
}
