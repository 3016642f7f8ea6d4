package docs_test

import (
	"strings"
	"testing"

	"github.com/carillonhq/carillon/docs"
)

func TestPagesHaveATopicAndATitle(t *testing.T) {
	t.Parallel()
	topics := map[string]bool{}
	bytes := 0
	for _, p := range docs.Pages() {
		if topics[p.Topic] || p.Topic == "" || !strings.HasPrefix(p.Text, "# "+p.Title+"\n") {
			t.Errorf("%q: got the title %q", p.Topic, p.Title)
		}
		topics[p.Topic] = true
		bytes += len(p.Text)
	}
	if !topics["cli"] || !topics["reminders"] || bytes > 256<<10 {
		t.Errorf("got %d bytes of %v", bytes, topics)
	}
}
