package dispatch_test

import "testing"

func TestALongPollEndsWithItsAuthority(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	c := h.open(h.dispatch).operator()
	c.do("GET", "/v1/ticks", "") // from now on the tenant is cached for two seconds
	poll := make(chan answer, 1)
	go func() { poll <- c.do("POST", "/v1/ticks/lease", `{"workflows": ["w"], "wait": "5s"}`) }()
	h.exec(`UPDATE tenant SET status = 'suspended'`)
	if a := <-poll; a.status != 401 || a.Code != "invalid_token" {
		t.Errorf("got %d %s", a.status, a.body)
	}
}
