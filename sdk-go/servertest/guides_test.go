package servertest

import (
	"bufio"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	carillon "github.com/carillonhq/carillon/sdk-go"
	"github.com/carillonhq/carillon/sdk-go/servertest/guides/reminders"
)

func text(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Each Go block of a guide is in the program of that guide, which other tests run.
func TestGuidesAreTheirPrograms(t *testing.T) {
	t.Parallel()
	for page, program := range map[string]string{
		"reminders.md":         "guides/reminders/reminders.go",
		"fall-back-weekend.md": "guides/fallback/fallback_test.go",
	} {
		source := text(t, program)
		blocks := strings.Split(text(t, filepath.Join("../../docs/guides", page)), "```go\n")[1:]
		if len(blocks) == 0 {
			t.Errorf("%s has no Go block", page)
		}
		for _, block := range blocks {
			if code, _, _ := strings.Cut(block, "```"); !strings.Contains(source, code) {
				t.Errorf("%s: this is not in %s:\n%s", page, program, code)
			}
		}
	}
}

var ours = regexp.MustCompile("`((?:app|client|carillon)\\.[^`]+)`")

// Each of our calls in coming-from.md compiles.
func TestComingFromCompiles(t *testing.T) {
	t.Parallel()
	source, found := text(t, "guides/comingfrom/comingfrom.go"), 0
	for line := range strings.Lines(text(t, "../../docs/coming-from.md")) {
		if !strings.HasPrefix(line, "|") {
			continue
		}
		cells := strings.Split(line, " | ")
		for _, call := range ours.FindAllStringSubmatch(cells[len(cells)-1], -1) {
			found++
			if !strings.Contains(source, call[1]) {
				t.Errorf("this is not in comingfrom.go: %s", call[1])
			}
		}
	}
	if found < 20 {
		t.Errorf("coming-from.md shows %d of our calls", found)
	}
}

// remind is a Send that keeps what it sent.
type remind struct {
	sync.Mutex
	sent []string
}

func (r *remind) send(_ context.Context, user, text string, local time.Time) error {
	r.Lock()
	defer r.Unlock()
	r.sent = append(r.sent, user+" "+text+local.Format(" -07:00"))
	return nil
}

func (r *remind) has(line string) bool {
	r.Lock()
	defer r.Unlock()
	return strings.Contains(strings.Join(r.sent, "\n")+"\n", line+"\n")
}

// waitFor waits until a condition holds.
func waitFor(t *testing.T, what string, yes func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !yes(); {
		if time.Now().After(deadline) {
			t.Fatalf("within a minute there is no %s", what)
		}
		<-time.After(20 * time.Millisecond)
	}
}

func TestTheRemindersGuideRuns(t *testing.T) {
	t.Parallel()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var sent remind
	r := reminders.Reminders{Client: client(t), Send: sent.send}
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	ok(r.Set(ctx, "mira", "Asia/Kathmandu", "* * * * * *", "tea"))
	waitFor(t, "reminder in Nepal", func() bool { return sent.has("mira tea +05:45") })
	ok(r.Move(ctx, "mira", "Asia/Tokyo"))
	waitFor(t, "reminder in Japan", func() bool { return sent.has("mira tea +09:00") })
	ok(r.Set(ctx, "otto", "Europe/Berlin", "0 8 1 1 *", "fireworks"))
	ok(r.Snooze(ctx, "otto", "1s"))
	waitFor(t, "snoozed reminder", func() bool { return sent.has("otto fireworks +01:00") || sent.has("otto fireworks +02:00") })
	why, err := r.Why(ctx, "mira", "1999-01-01T08:00")
	if err != nil || why == "" {
		t.Errorf("got %q, %v", why, err)
	}
	ok(r.Stop(ctx, "mira"))
	if _, err := r.Client.Schedules.Get(ctx, "reminder", "mira"); err == nil {
		t.Error("the reminder is still there")
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// The program of the README prints a reminder in the zone of its user.
func TestTheREADMEsProgramRuns(t *testing.T) {
	t.Parallel()
	if lines := strings.Count(text(t, "guides/hello/main.go"), "\n") - 1; lines >= 30 {
		t.Errorf("the program has %d lines", lines)
	}
	program := filepath.Join(t.TempDir(), "hello")
	if out, err := exec.Command("go", "build", "-o", program, "./guides/hello").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	tenant := newTenant(t)
	key := token(t, tenant)
	c, err := carillon.New(carillon.Config{URL: server.URL, Token: key})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	if _, err := c.Subjects.Put(t.Context(), "user_123", carillon.SubjectParams{Timezone: "Asia/Kolkata"}); err != nil {
		t.Fatal(err)
	}
	printed, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer printed.Close()
	cmd := exec.CommandContext(t.Context(), program)
	cmd.Env = append(os.Environ(), "CARILLON_URL="+server.URL, "CARILLON_API_KEY="+key)
	cmd.Stdout = out
	err = cmd.Start()
	out.Close()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill() // it works until it is killed
		_ = cmd.Wait()
	}()
	waitFor(t, "schedule", func() bool {
		_, err := c.Schedules.Trigger(t.Context(), "reminder", "user_123", carillon.TriggerParams{})
		return err == nil
	})
	line, err := bufio.NewReader(printed).ReadString('\n')
	if err != nil || !strings.HasSuffix(line, "+0530 user_123 drink water\n") {
		t.Errorf("it printed %q, %v", line, err)
	}
}
