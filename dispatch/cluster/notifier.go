package cluster

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/carillonhq/carillon/internal/postgres"
	"github.com/carillonhq/carillon/schedules/cohorts"
	"github.com/carillonhq/carillon/tenants"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// ReadyChannel is the notification channel that tells all processes of ticks that wait for a worker: its payloads are
// tenant, hash of the workflow's name, and how many.
const ReadyChannel = "carillon_ready"

const tellEvery = 5 * time.Millisecond

// topic is what a long poll waits for. Two workflows with one hash wake one another: it costs a look, no more.
type topic struct {
	tenant   tenants.ID
	workflow uint32
}

// Payload is what the other processes are notified with: n ticks of the topic wait.
func (t topic) Payload(n int) string { return fmt.Sprintf("%d %d %d", t.tenant, t.workflow, n) }

// TopicOf returns the topic of a workflow of a tenant.
func TopicOf(tenant tenants.ID, workflow string) topic {
	h := fnv.New32a()
	_, _ = h.Write([]byte(workflow))
	return topic{tenant, h.Sum32()}
}

// Notifier wakes long polls: as many as there are ticks.
type Notifier struct {
	mu      sync.Mutex
	waiting map[topic][]*poll
	untold  map[topic]int
	lanes   map[string]bool // in which there are jobs that nobody may have been told of
	runs    []string        // that other processes are to open
	tellNow chan struct{}
	due     chan struct{}
}

// poll is one long poll that waits; its channel is closed when it is to look again.
type poll struct {
	Woken     chan struct{}
	once      sync.Once
	room      int // how many ticks it would take
	tenant    tenants.ID
	workflows []string
}

// NewNotifier returns a Notifier for which nobody waits.
func NewNotifier() *Notifier {
	return &Notifier{waiting: map[topic][]*poll{}, untold: map[topic]int{}, lanes: map[string]bool{}, tellNow: make(chan struct{}, 1), due: make(chan struct{}, 1)}
}

// Wait registers a poll for workflows; leave takes it out.
func (h *Notifier) Wait(tenant tenants.ID, workflows []string, room int) (p *poll, leave func()) {
	p = &poll{Woken: make(chan struct{}), room: room, tenant: tenant, workflows: workflows}
	topics := make([]topic, len(workflows))
	h.mu.Lock()
	defer h.mu.Unlock()
	for i, w := range workflows {
		topics[i] = TopicOf(tenant, w)
		h.waiting[topics[i]] = append(h.waiting[topics[i]], p)
	}
	return p, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		for _, t := range topics {
			h.drop(t, p)
		}
	}
}

func (h *Notifier) drop(t topic, p *poll) {
	polls := h.waiting[t]
	for i, other := range polls {
		if other == p {
			h.waiting[t] = append(polls[:i:i], polls[i+1:]...)
			break
		}
	}
	if len(h.waiting[t]) == 0 {
		delete(h.waiting, t)
	}
}

// Wake wakes polls that together have room for n ticks of a topic, the longest waiting first.
func (h *Notifier) Wake(t topic, n int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	polls := h.waiting[t]
	for len(polls) > 0 && n > 0 {
		p := polls[0]
		polls = polls[1:]
		p.once.Do(func() { close(p.Woken) })
		n -= p.room
	}
	if len(polls) == 0 {
		delete(h.waiting, t)
		return
	}
	h.waiting[t] = polls
}

// Ready tells polls here, and soon those of the other processes, that n ticks of a workflow wait.
func (h *Notifier) Ready(tenant tenants.ID, workflow string, n int) {
	t := TopicOf(tenant, workflow)
	h.Wake(t, n)
	h.mu.Lock()
	h.untold[t] += n
	h.mu.Unlock()
	h.tellSoon()
}

// Elsewhere tells the other processes of runs that they are to open, and River's clients of the jobs in their lanes.
func (h *Notifier) Elsewhere(runs, lanes []string) {
	h.mu.Lock()
	h.runs = append(h.runs, runs...)
	h.mu.Unlock()
	h.Queued(lanes)
}

// Queued has River's clients told of jobs in some lanes that have been committed.
func (h *Notifier) Queued(lanes []string) {
	if len(lanes) == 0 {
		return
	}
	h.mu.Lock()
	for _, lane := range lanes {
		h.lanes[lane] = true
	}
	h.mu.Unlock()
	h.tellSoon()
}

// openChannel is the notification channel of runs that were made by a process which does not open them itself.
const openChannel = "carillon_open"

// AnnounceOpen notifies, when the transaction is committed, the processes that open chunks of a run in a lane, and River's clients of
// its job.
func AnnounceOpen(ctx context.Context, tx pgx.Tx, lane, run string) error {
	if err := postgres.Notify(ctx, tx, openChannel, run); err != nil {
		return err
	}
	return AnnounceLane(ctx, tx, lane)
}

// AnnounceLane notifies River's clients of jobs in a lane when the transaction is committed.
func AnnounceLane(ctx context.Context, tx pgx.Tx, lane string) error {
	return postgres.Notify(ctx, tx, riverChannel, lanePayload(lane))
}

const riverChannel = ".river_insert" // of the current schema

func lanePayload(lane string) string { return fmt.Sprintf(`{"queue": %q}`, lane) }

func (h *Notifier) tellSoon() {
	select {
	case h.tellNow <- struct{}{}:
	default:
	}
}

// Tell notifies the other processes, a few milliseconds' worth at once, until ctx ends.
func (h *Notifier) Tell(ctx context.Context, pool *pgxpool.Pool, log *slog.Logger) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.tellNow:
		}
		timer := time.NewTimer(tellEvery)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		h.mu.Lock()
		var channels, payloads []string
		for t, n := range h.untold {
			channels, payloads = append(channels, ReadyChannel), append(payloads, t.Payload(n))
		}
		for lane := range h.lanes {
			channels, payloads = append(channels, riverChannel), append(payloads, lanePayload(lane))
		}
		for _, run := range h.runs {
			channels, payloads = append(channels, openChannel), append(payloads, run)
		}
		h.runs = nil
		clear(h.untold)
		clear(h.lanes)
		h.mu.Unlock()
		notify, cancel := context.WithTimeout(ctx, 5*time.Second)
		if _, err := pool.Exec(notify, postgres.NotifyAll, channels, payloads); err != nil && ctx.Err() == nil {
			log.Warn("cannot notify other processes of ready ticks and jobs", "error", err) // they also look for them at intervals
		}
		cancel()
	}
}

// Due returns the channel that reports that something came due: the sweep of this process looks at once.
func (h *Notifier) Due() <-chan struct{} { return h.due }

// CameDue reports on Due that something came due. Reports that nobody has read yet count as one.
func (h *Notifier) CameDue() {
	select {
	case h.due <- struct{}{}:
	default:
	}
}

// Listen hears what other processes tell, on one connection, until ctx ends. It calls told with each run of chunks that they left to
// others.
func (h *Notifier) Listen(ctx context.Context, pool *pgxpool.Pool, log *slog.Logger, told func(run string)) {
	for ctx.Err() == nil {
		if err := h.listenOnce(ctx, pool, told); err != nil && ctx.Err() == nil {
			log.Warn("the connection that listens broke and is made anew", "error", err)
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	}
}

func (h *Notifier) listenOnce(ctx context.Context, pool *pgxpool.Pool, told func(run string)) error {
	conn, err := postgres.Connect(ctx, pool)
	if err != nil {
		return err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = conn.Close(closing)
	}()
	if _, err := conn.Exec(ctx, "LISTEN "+ReadyChannel+"; LISTEN "+cohorts.DueChannel+"; LISTEN "+openChannel); err != nil {
		return err
	}
	h.CameDue() // while nobody listened
	for {
		n, err := hear(ctx, conn)
		if err != nil {
			return err
		}
		if n == nil {
			continue
		}
		if n.Channel == cohorts.DueChannel {
			h.CameDue()
			continue
		}
		if n.Channel == openChannel {
			told(n.Payload)
			continue
		}
		if t, count, ok := parseReady(n.Payload); ok {
			h.Wake(t, count)
		}
	}
}

// The listener's connection is looked after like this: a server that notifies nobody is asked whether it is there.
const (
	quietFor     = 3 * time.Second
	answerWithin = 2 * time.Second
)

// hear waits for a notification. It returns none when the server has notified nobody for a while and is there.
func hear(ctx context.Context, conn *pgx.Conn) (*pgconn.Notification, error) {
	wait, cancel := context.WithTimeout(ctx, quietFor)
	defer cancel()
	n, err := conn.WaitForNotification(wait)
	if err == nil || ctx.Err() != nil || conn.IsClosed() || !errors.Is(err, context.DeadlineExceeded) {
		return n, err
	}
	asked, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	return nil, conn.Ping(asked)
}

func parseReady(payload string) (t topic, n int, ok bool) {
	parts := strings.Fields(payload)
	if len(parts) != 3 {
		return t, 0, false
	}
	tenant, err1 := strconv.ParseInt(parts[0], 10, 32)
	workflow, err2 := strconv.ParseUint(parts[1], 10, 32)
	n, err3 := strconv.Atoi(parts[2])
	return topic{tenants.ID(tenant), uint32(workflow)}, n, err1 == nil && err2 == nil && err3 == nil
}

// Polled are the workflows that long polls of this process wait for, as the columns of a query.
type Polled struct {
	Tenants   []int32
	Workflows []string
}

// Polled returns the workflows that long polls wait for, each once.
func (h *Notifier) Polled() (all Polled) {
	h.mu.Lock()
	defer h.mu.Unlock()
	type name struct {
		tenant   tenants.ID
		workflow string
	}
	seen := map[name]bool{}
	for _, polls := range h.waiting {
		for _, p := range polls {
			for _, workflow := range p.workflows {
				if n := (name{p.tenant, workflow}); !seen[n] {
					seen[n] = true
					all.Tenants, all.Workflows = append(all.Tenants, int32(p.tenant)), append(all.Workflows, workflow)
				}
			}
		}
	}
	return all
}
