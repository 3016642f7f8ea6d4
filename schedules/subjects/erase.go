package subjects

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/internal/fault"
	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/internal/version"
	"github.com/carillonhq/carillon/schedules"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/schedules/forecast"
	"github.com/carillonhq/carillon/schedules/policy"
	"github.com/carillonhq/carillon/tenants"
)

// Forget deletes a bounded part of the record of schedules that are no more, in the caller's transaction: how many ticks
// and attempts, and whether nothing of them is left.
type Forget func(ctx context.Context, tx pgx.Tx, tenant tenants.ID, schedules []int64) (ticks, attempts int64, done bool, err error)

// Erasure is the receipt of a subject's erasure. SubjectHash is a hash of tenant and subject under the installation's secret, in
// hexadecimal digits.
type Erasure struct {
	SubjectHash string        `json:"subject_hash"`
	ErasedAt    time.Time     `json:"erased_at"`
	ErasedBy    string        `json:"erased_by"`
	Counts      ErasureCounts `json:"counts"`
}

// ErasureCounts are how much there was of a subject.
type ErasureCounts struct {
	Profiles  int32 `json:"profiles"`
	Schedules int32 `json:"schedules"`
	Revisions int32 `json:"revisions"`
	Ticks     int64 `json:"ticks"`
	Attempts  int64 `json:"attempts"`
	Answers   int64 `json:"answers"`
}

// ErasuresConfig is what Erasures need. All members are required.
type ErasuresConfig struct {
	Pool   postgres.DB // it shows only the rows of the tenant that a context names
	Forget Forget
	Secret []byte // of the hashes of subjects, which reveal nothing of what was hashed
}

// Erasures erase subjects. They are safe for concurrent use.
type Erasures struct {
	pool   postgres.DB
	forget Forget
	secret []byte
}

// NewErasures returns Erasures over a pool whose database is migrated.
func NewErasures(c ErasuresConfig) *Erasures {
	return &Erasures{pool: c.Pool, forget: c.Forget, secret: c.Secret}
}

const eraseTime = 8 * time.Second

// Erase deletes all that is kept of a subject over all workflows, and keeps a receipt. It
// deletes the schedules and then their record in bounded parts, and all is gone when it returns.
// If that takes too long, it returns a fault 503, and FinishErasures goes on with the erasure.
func (es *Erasures) Erase(ctx context.Context, tenant tenants.ID, subject, by string, pre version.Precondition) (Erasure, error) {
	if err := policy.CheckSubject("/subject", subject); err != nil {
		return Erasure{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, eraseTime)
	defer cancel()
	hash := es.subjectHash(tenant, subject)
	var id int64
	err := postgres.Retry(ctx, func() error {
		return pgx.BeginFunc(ctx, es.pool, func(tx pgx.Tx) (err error) {
			if err := cohorts.LockSubjects(ctx, tx, tenant, cohorts.ToChange, subject); err != nil {
				return err
			}
			if err := checkProfile(ctx, tx, tenant, subject, pre); err != nil {
				return err
			}
			id, err = eraseSchedules(ctx, tx, tenant, subject, hash, by)
			return err
		})
	})
	if err != nil {
		return Erasure{}, err
	}
	pending, err := es.pendingErasures(ctx, tenant, hash)
	if err != nil {
		return Erasure{}, err
	}
	for _, one := range pending { // an earlier erasure of the subject that was cut is finished, too
		if err := es.finishErasure(ctx, tenant, one); err != nil {
			if ctx.Err() != nil {
				busy := fault.Unavailable("busy", "the subject has much data, and its erasure continues: send the request again later")
				busy.RetryAfter = 10 * time.Second
				return Erasure{}, busy
			}
			return Erasure{}, err
		}
	}
	return es.erasure(ctx, tenant, id)
}

// subjectHash returns a hash of a tenant's subject. Without the secret it reveals nothing of the subject.
func (es *Erasures) subjectHash(tenant tenants.ID, subject string) []byte {
	h := hmac.New(sha256.New, es.secret)
	_, _ = fmt.Fprintf(h, "carillon subject v1 %d/%s", tenant, subject)
	return h.Sum(nil)
}

// checkProfile compares what a request demands with the version of a subject's profile. The subject is locked.
func checkProfile(ctx context.Context, tx pgx.Tx, tenant tenants.ID, subject string, pre version.Precondition) error {
	var version int64
	err := tx.QueryRow(ctx, `SELECT version FROM subject_profile WHERE tenant_id = $1 AND subject = $2`, tenant, subject).Scan(&version)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("read profile: %w", err)
	}
	return pre.Check(err == nil, version)
}

// eraseStep is how many schedules of a subject are erased in one transaction, which locks the shards that they lie in.
const eraseStep = 500

// eraseSchedules begins the erasure of a subject, which is locked. It deletes all that names the subject, except the record of its
// schedules, kept answers, and the schedules beyond eraseStep. It stores what is left to do.
func eraseSchedules(ctx context.Context, tx pgx.Tx, tenant tenants.ID, subject string, hash []byte, by string) (id int64, err error) {
	found, err := find(ctx, tx, tenant, subject)
	if err != nil {
		return 0, err
	}
	ids := found.all()
	slices.Sort(ids)
	err = tx.QueryRow(ctx, `
		WITH profiles AS (
			DELETE FROM subject_profile WHERE tenant_id = $1 AND subject = $2 RETURNING 1
		)
		INSERT INTO erasure (tenant_id, subject_hash, subject, earlier, erased_by, began_at, schedule_ids, profiles, schedules, revisions)
		SELECT $1, $3, $2, ARRAY (SELECT DISTINCT substr(target, 1 + length('subjects/')) FROM audit WHERE tenant_id = $1 AND subject = $2 AND action = 'subject.rename'),
			$4, `+postgres.Now+`, $5, (SELECT count(*) FROM profiles), 0, 0
		RETURNING id`, tenant, subject, hash, by, ids).Scan(&id)
	if err != nil {
		return 0, fmt.Errorf("begin an erasure: %w", err)
	}
	begun := unfinished{tenant: tenant, id: id, subject: subject, hash: hash}
	if err := begun.erasePart(ctx, tx, ids[:min(eraseStep, len(ids))]); err != nil {
		return 0, err
	}
	err = tenants.Audit(ctx, tx, tenant, by, tenants.Change{Action: "subject.erase", Target: "subjects/" + hex.EncodeToString(hash)})
	if err != nil {
		return 0, err
	}
	return id, nil
}

// erasePart deletes schedules of an erased subject with their versions, versions of other schedules that were for the subject, and what
// names the subject by now.
func (e unfinished) erasePart(ctx context.Context, tx pgx.Tx, ids []int64) error {
	var shards []int16
	err := tx.QueryRow(ctx, `SELECT COALESCE(array_agg(DISTINCT shard ORDER BY shard), '{}') FROM schedule WHERE tenant_id = $1 AND id = ANY($2)`, e.tenant, ids).Scan(&shards)
	if err != nil {
		return fmt.Errorf("look for shards: %w", err)
	}
	if err := schedules.LockRows(ctx, tx, e.tenant, shards, ids); err != nil {
		return err
	}
	var b pgx.Batch
	b.Queue(`
		DELETE FROM member m
		USING schedule s
		WHERE s.tenant_id = $1 AND s.id = ANY($2)
			AND m.cohort_id = s.cohort_id AND m.phase = s.phase AND m.schedule_id = s.id AND m.tenant_id = s.tenant_id`, e.tenant, ids)
	b.Queue(`DELETE FROM schedule_state WHERE tenant_id = $1 AND schedule_id = ANY($2)`, e.tenant, ids)
	b.Queue(`
		WITH schedules AS (
			DELETE FROM schedule WHERE tenant_id = $1 AND id = ANY($3) RETURNING `+forecast.BytesOf+` AS bytes
		), revisions AS (
			DELETE FROM revision WHERE tenant_id = $1 AND (schedule_id = ANY($3) OR subject = $5) RETURNING `+forecast.BytesOf+` AS bytes
		), counted AS (
			INSERT INTO tally_delta (tenant_id, cohort_id, n)
			SELECT $1, $4, -sum(bytes)
			FROM (SELECT bytes FROM schedules UNION ALL SELECT bytes FROM revisions) erased
			HAVING sum(bytes) <> 0
		)
		UPDATE erasure
		SET schedules = schedules + (SELECT count(*) FROM schedules), revisions = revisions + (SELECT count(*) FROM revisions)
		WHERE tenant_id = $1 AND id = $2`, e.tenant, e.id, ids, forecast.AllBytes, e.subject)
	// An operation that is under way is cancelled: without its params it cannot go on.
	b.Queue(`
		UPDATE operation
		SET subject = NULL, params = '{}', cursor = NULL, result = NULL, error = NULL,
			cancel = cancel OR ended_at IS NULL, look_at = CASE WHEN ended_at IS NULL THEN `+postgres.Now+` ELSE look_at END
		WHERE tenant_id = $1 AND subject = $2`, e.tenant, e.subject)
	b.Queue(`
		UPDATE audit
		SET target = $3, subject = NULL, before = NULL, after = NULL, remote = NULL
		WHERE tenant_id = $1 AND subject = $2`, e.tenant, e.subject, "subjects/"+hex.EncodeToString(e.hash))
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		return fmt.Errorf("erase schedules: %w", err)
	}
	return nil
}

// unerased returns some schedules of an erasure that are there still, or whose versions are.
func unerased(ctx context.Context, tx pgx.Tx, tenant tenants.ID, ids []int64) ([]int64, error) {
	rows, _ := tx.Query(ctx, `
		SELECT n.id
		FROM unnest($2::bigint[]) AS n (id)
		WHERE EXISTS (SELECT FROM schedule s WHERE s.tenant_id = $1 AND s.id = n.id OFFSET 0)
			OR EXISTS (SELECT FROM revision r WHERE r.tenant_id = $1 AND r.schedule_id = n.id OFFSET 0)
		LIMIT $3`, tenant, ids, eraseStep) // CollectRows reports the error
	left, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return nil, fmt.Errorf("look for schedules to erase: %w", err)
	}
	return left, nil
}

// pendingErasures are those of one subject that are not finished.
func (es *Erasures) pendingErasures(ctx context.Context, tenant tenants.ID, hash []byte) ([]int64, error) {
	rows, _ := es.pool.Query(ctx, `SELECT id FROM erasure WHERE tenant_id = $1 AND subject_hash = $2 AND erased_at IS NULL ORDER BY id`, tenant, hash) // CollectRows reports the error
	pending, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return nil, fmt.Errorf("look for erasures: %w", err)
	}
	return pending, nil
}

// finishErasure deletes what is left of a subject, part after part.
func (es *Erasures) finishErasure(ctx context.Context, tenant tenants.ID, id int64) error {
	for {
		var done bool
		err := postgres.Retry(ctx, func() error {
			return pgx.BeginFunc(ctx, es.pool, func(tx pgx.Tx) (err error) {
				done, err = es.eraseRecord(ctx, tx, tenant, id)
				return err
			})
		})
		if err != nil || done {
			return err
		}
	}
}

func (es *Erasures) erasure(ctx context.Context, tenant tenants.ID, id int64) (e Erasure, err error) {
	var hash []byte
	n := &e.Counts
	err = es.pool.QueryRow(ctx, `
		SELECT subject_hash, erased_at, erased_by, profiles, schedules, revisions, ticks, attempts, answers
		FROM erasure
		WHERE tenant_id = $1 AND id = $2`, tenant, id).
		Scan(&hash, &e.ErasedAt, &e.ErasedBy, &n.Profiles, &n.Schedules, &n.Revisions, &n.Ticks, &n.Attempts, &n.Answers)
	if err != nil {
		return e, fmt.Errorf("read erasure: %w", err)
	}
	e.SubjectHash, e.ErasedAt = hex.EncodeToString(hash), e.ErasedAt.UTC()
	return e, nil
}

// FinishErasures goes on with erasures of all tenants that began a while ago and that nobody has finished: the request was
// cut, or its process died. engine shows the rows of all tenants. An erasure that fails does not stop the others.
func (es *Erasures) FinishErasures(ctx context.Context, engine postgres.DB) error {
	rows, _ := engine.Query(ctx, `
		SELECT tenant_id, id
		FROM erasure
		WHERE erased_at IS NULL AND began_at < `+postgres.Now+` - $1::interval
		ORDER BY began_at
		LIMIT 100`, 4*eraseTime) // ForEachRow reports the error
	left := map[int64]tenants.ID{}
	var tenant tenants.ID
	var id int64
	_, err := pgx.ForEachRow(rows, []any{&tenant, &id}, func() error {
		left[id] = tenant
		return nil
	})
	if err != nil {
		return fmt.Errorf("look for erasures: %w", err)
	}
	var errs []error
	for _, id := range slices.Sorted(maps.Keys(left)) {
		if err := es.finishErasure(postgres.ForTenant(ctx, int32(left[id])), left[id], id); err != nil {
			errs = append(errs, fmt.Errorf("erasure %d of tenant %d: %w", id, left[id], err))
		}
	}
	return errors.Join(errs...)
}
