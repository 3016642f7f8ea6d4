package cluster

import (
	"context"
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
	"github.com/jackc/pgx/v5/pgxpool"
)

// ReadyChannel is the notification channel for ticks that wait for a worker. A payload is the tenant, the hash of the workflow's name,
// and the number of ticks.
const ReadyChannel = "carillon_ready"

const notifyEvery = 5 * time.Millisecond

// topic is what a long poll waits for. Two workflows with the same hash wake each other's polls, which costs one look.
type topic struct {
	tenant   tenants.ID
	workflow uint32
}

// Payload returns the payload of ReadyChannel: n ticks of the topic wait.
func (t topic) Payload(n int) string { return fmt.Sprintf("%d %d %d", t.tenant, t.workflow, n) }

// TopicOf returns the topic of a workflow of a tenant.
func TopicOf(tenant tenants.ID, workflow string) topic {
	h := fnv.New32a()
	_, _ = h.Write([]byte(workflow))
	return topic{tenant, h.Sum32()}
}

// Notifier wakes long polls, as many as there are ticks, and carries wake-ups between processes. It is safe for concurrent use.
type Notifier struct {
	mu        sync.Mutex
	waiting   map[topic][]*poll
	unsent    map[topic]int
	lanes     map[string]bool // with new jobs that River's clients are not notified of yet
	runs      []string        // for other processes to open, not notified yet
	notifyNow chan struct{}
	due       chan struct{}
}

// poll is one long poll that waits. Woken is closed when it must look again.
type poll struct {
	Woken     chan struct{}
	once      sync.Once
	room      int // how many ticks it would take
	tenant    tenants.ID
	workflows []string
}

// NewNotifier returns a Notifier without polls.
func NewNotifier() *Notifier {
	return &Notifier{waiting: map[topic][]*poll{}, unsent: map[topic]int{}, lanes: map[string]bool{}, notifyNow: make(chan struct{}, 1), due: make(chan struct{}, 1)}
}

// Wait registers a poll for workflows that takes up to room ticks. leave removes it.
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

// Wake wakes polls of this process that together have room for n ticks of a topic, the longest waiting first.
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

// Ready wakes polls of this process, and soon those of other processes, for n ticks of a workflow.
func (h *Notifier) Ready(tenant tenants.ID, workflow string, n int) {
	t := TopicOf(tenant, workflow)
	h.Wake(t, n)
	h.mu.Lock()
	h.unsent[t] += n
	h.mu.Unlock()
	h.notifySoon()
}

// Elsewhere notifies the other processes of runs that they open, and River's clients of the jobs in those lanes.
func (h *Notifier) Elsewhere(runs, lanes []string) {
	h.mu.Lock()
	h.runs = append(h.runs, runs...)
	h.mu.Unlock()
	h.Queued(lanes)
}

// Queued notifies River's clients soon of jobs in some lanes that have been committed.
func (h *Notifier) Queued(lanes []string) {
	if len(lanes) == 0 {
		return
	}
	h.mu.Lock()
	for _, lane := range lanes {
		h.lanes[lane] = true
	}
	h.mu.Unlock()
	h.notifySoon()
}

// openChannel is the notification channel for runs that another process than their maker opens.
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

func (h *Notifier) notifySoon() {
	select {
	case h.notifyNow <- struct{}{}:
	default:
	}
}

// Tell sends the notifications of this process, those of a few milliseconds at once, until ctx ends.
func (h *Notifier) Tell(ctx context.Context, pool *pgxpool.Pool, log *slog.Logger) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.notifyNow:
		}
		timer := time.NewTimer(notifyEvery)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C:
		}
		h.mu.Lock()
		var channels, payloads []string
		for t, n := range h.unsent {
			channels, payloads = append(channels, ReadyChannel), append(payloads, t.Payload(n))
		}
		for lane := range h.lanes {
			channels, payloads = append(channels, riverChannel), append(payloads, lanePayload(lane))
		}
		for _, run := range h.runs {
			channels, payloads = append(channels, openChannel), append(payloads, run)
		}
		h.runs = nil
		clear(h.unsent)
		clear(h.lanes)
		h.mu.Unlock()
		notify, cancel := context.WithTimeout(ctx, 5*time.Second)
		if _, err := pool.Exec(notify, postgres.NotifyAll, channels, payloads); err != nil && ctx.Err() == nil {
			log.Warn("cannot notify other processes of ready ticks and jobs", "error", err) // they also look at intervals
		}
		cancel()
	}
}

// Due returns the channel that makes the sweep of this process look at once: something came due.
func (h *Notifier) Due() <-chan struct{} { return h.due }

// CameDue reports on Due that something came due. Several reports before the sweep reads one count as one.
func (h *Notifier) CameDue() {
	select {
	case h.due <- struct{}{}:
	default:
	}
}

// Listen receives the notifications of other processes, on one connection, until ctx ends. It calls opens with each run of chunks that
// their maker leaves to others, and the functions of others with the payloads of their channels.
func (h *Notifier) Listen(ctx context.Context, pool *pgxpool.Pool, log *slog.Logger, opens func(run string), others map[string]func(payload string)) {
	for ctx.Err() == nil {
		if err := h.listenOnce(ctx, pool, opens, others); err != nil && ctx.Err() == nil {
			log.Warn("the LISTEN connection broke and is opened again", "error", err)
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	}
}

func (h *Notifier) listenOnce(ctx context.Context, pool *pgxpool.Pool, opens func(run string), others map[string]func(payload string)) error {
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
	for channel := range others {
		if _, err := conn.Exec(ctx, "LISTEN "+channel); err != nil {
			return err
		}
	}
	h.CameDue() // a notification may have been missed while nobody listened
	for {
		n, err := postgres.Receive(ctx, conn)
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
			opens(n.Payload)
			continue
		}
		if other := others[n.Channel]; other != nil {
			other(n.Payload)
			continue
		}
		if t, count, ok := parseReady(n.Payload); ok {
			h.Wake(t, count)
		}
	}
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
