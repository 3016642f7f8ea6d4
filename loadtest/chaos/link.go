package chaos

import (
	"context"
	"fmt"
	"strings"
	"sync"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
)

// link is the way from a process to the database, or from the processes to an endpoint: a proxy that can be made to misbehave.
type link struct {
	name  string
	proxy *toxiproxy.Proxy
	fault sync.Mutex // held during a fault of one of its ends
}

func (l *Lab) newLink(name, to string) (*link, error) {
	k := &link{name: name, proxy: toxiproxy.NewProxy(l.proxies, name, "127.0.0.1:0", to)}
	return k, k.proxy.Start()
}

// toxic adds a toxic to one direction.
func (k *link) toxic(kind, stream, attributes string) error {
	text := fmt.Sprintf(`{"name":"t-%s","type":%q,"stream":%q,"attributes":%s}`, stream, kind, stream, attributes)
	_, err := k.proxy.Toxics.AddToxicJson(strings.NewReader(text))
	return err
}

// cure removes all toxics and lets the proxy listen.
func (k *link) cure(ctx context.Context) {
	k.proxy.Toxics.ResetToxics(ctx)
	_ = k.proxy.Start() // it may be started already
}
