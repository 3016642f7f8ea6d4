package tenants

import (
	"fmt"
	"testing"
)

// A retention of the record is refused where PostgreSQL's lock table has no room for its partitions.
func TestARetentionThatTheLockTableHasNoRoomForIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	e, root := w.router(t), w.token(t, "", PlatformAdmin)
	days, err := ReadRecordDays(t.Context(), w.pool)
	if err != nil {
		t.Fatal(err)
	}
	if days.Longest != 30 || days.Most <= 30 || days.Most >= 3650 {
		t.Fatalf("got %+v", days)
	}
	for _, member := range []string{"tick_retention_days", "attempt_retention_days"} {
		rec, doc := ask(e, "PUT", "/v1/platform/tenants/long", root, fmt.Sprintf(`{"quotas":{%q:%d}}`, member, days.Most+1))
		fields, _ := doc["errors"].([]any)
		if rec.Code != 422 || len(fields) != 1 || fields[0].(map[string]any)["pointer"] != "/quotas/"+member {
			t.Errorf("%s: got %d %s", member, rec.Code, rec.Body)
		}
		if rec, _ := ask(e, "PUT", "/v1/platform/tenants/long", root, fmt.Sprintf(`{"quotas":{%q:%d}}`, member, days.Most)); rec.Code/100 != 2 {
			t.Errorf("%s: got %d %s", member, rec.Code, rec.Body)
		}
	}
	if longest, err := ReadRecordDays(t.Context(), w.pool); err != nil || longest.Longest != days.Most {
		t.Errorf("got %+v, %v", longest, err)
	}
}
