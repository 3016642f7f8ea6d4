package chaos

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	toxiproxy "github.com/Shopify/toxiproxy/v2"
)

// link is the way from a process to the database, or from the processes to an endpoint: a proxy that can be made to misbehave.
type link struct {
	name  string
	proxy *toxiproxy.Proxy
	say   func(format string, args ...any)
	fault sync.Mutex // held during a fault of one of its ends
}

func (l *Lab) newLink(name, to string) (*link, error) {
	at, err := FreeAddress() // it must be free again whenever the proxy starts again
	if err != nil {
		return nil, err
	}
	k := &link{name: name, proxy: toxiproxy.NewProxy(l.proxies, name, at, to), say: l.say}
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
	if err := k.proxy.Start(); err != nil && !errors.Is(err, toxiproxy.ErrProxyAlreadyStarted) {
		k.say("%s stays cut: %v", k.name, err)
	}
}
