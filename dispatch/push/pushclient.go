package push

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
	"time"

	"github.com/carillonhq/carillon/internal/web"
)

// pushClient makes requests, over a kept connection if there is one. An endpoint may close such a connection at the moment of its use,
// so a request that got no byte of an answer over a kept connection is repeated once, over a fresh one. net/http itself repeats only
// requests that it has not begun to write. So an endpoint reads at most two requests of one attempt.
type pushClient struct {
	kept, fresh *http.Client
}

func newPushClient(allowed web.Outbound) pushClient {
	dialer := &net.Dialer{Timeout: 5 * time.Second, KeepAlive: 30 * time.Second, Control: allowed.Control}
	client := func(keep bool) *http.Client {
		return &http.Client{
			Transport: &http.Transport{
				Proxy: allowed.ProxyFor, DialContext: dialer.DialContext, MaxIdleConns: 1000, MaxIdleConnsPerHost: mostSlots, DisableKeepAlives: !keep,
				IdleConnTimeout: time.Minute, TLSHandshakeTimeout: 5 * time.Second, DisableCompression: true,
				MaxResponseHeaderBytes: 32 << 10, TLSNextProto: map[string]func(string, *tls.Conn) http.RoundTripper{},
			},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		}
	}
	return pushClient{kept: client(true), fresh: client(false)}
}

// exchange records what happens to a request over a kept connection.
type exchange struct {
	trace            httptrace.ClientTrace
	reused, answered atomic.Bool
}

// watched returns a context for a request to do, and the exchange that records what happens to it.
func watched(ctx context.Context) (context.Context, *exchange) {
	x := &exchange{}
	x.trace.GotConn = func(info httptrace.GotConnInfo) { x.reused.Store(info.Reused) }
	x.trace.GotFirstResponseByte = func() { x.answered.Store(true) }
	return httptrace.WithClientTrace(ctx, &x.trace), x
}

func (c pushClient) do(req *http.Request, x *exchange) (*http.Response, error) {
	resp, err := c.kept.Do(req)
	if err == nil || !x.reused.Load() || x.answered.Load() || req.Context().Err() != nil {
		return resp, err
	}
	body, bodyErr := req.GetBody()
	if bodyErr != nil {
		return nil, err
	}
	again := req.Clone(req.Context())
	again.Body = body
	return c.fresh.Do(again)
}
