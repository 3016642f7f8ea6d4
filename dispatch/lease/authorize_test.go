package lease_test

import (
	"testing"

	"github.com/carillonhq/carillon/dispatch/dispatchtest"
)

func TestALongPollEndsWithItsAuthority(t *testing.T) {
	t.Parallel()
	h := dispatchtest.New(t)
	c := h.Open(h.Dispatch).Operator()
	c.Do("GET", "/v1/ticks", "") // from now on the tenant is cached for two seconds
	poll := make(chan dispatchtest.Answer, 1)
	go func() { poll <- c.Do("POST", "/v1/ticks/lease", `{"workflows": ["w"], "wait": "5s"}`) }()
	h.Exec(`UPDATE tenant SET status = 'suspended'`)
	if a := <-poll; a.Status != 401 || a.Code != "invalid_token" {
		t.Errorf("got %d %s", a.Status, a.Body)
	}
}
