package main

import (
	"fmt"
	"log/slog"
	"net/netip"
	"net/url"
	"strings"

	"github.com/carillonhq/carillon/internal/sabotage"
	"github.com/carillonhq/carillon/internal/web"
)

// outboundSettings say which addresses of tenants this process may call, besides public ones by https.
type outboundSettings struct {
	AllowNetworks networks `env:"CARILLON_ALLOW_NETWORKS" flag:"allow-networks" value:"NETWORKS" help:"your own networks in which endpoints and key sets may be, on any port, separated by commas: 10.0.0.0/8,fd00::/8; metadata services of clouds are still refused"`
	AllowHTTP     bool     `env:"CARILLON_ALLOW_HTTP" flag:"allow-http" help:"allow http besides https for endpoints and key sets"`
	EgressProxy   proxy    `env:"CARILLON_EGRESS_PROXY" secret:"true" help:"the HTTP proxy for requests to endpoints and key sets; it decides which addresses a name may have: http://user:password@host:port"`
}

// networks are prefixes of addresses.
type networks struct{ prefixes []netip.Prefix }

func (n *networks) UnmarshalText(text []byte) error {
	for one := range strings.SplitSeq(string(text), ",") {
		p, err := netip.ParsePrefix(strings.TrimSpace(one))
		if err != nil || p != p.Masked() || p.Addr().Is4In6() {
			return fmt.Errorf("%q is not a network such as 10.0.0.0/8 or fd00::/8", one)
		}
		n.prefixes = append(n.prefixes, p)
	}
	return nil
}

// proxy is the URL of an HTTP proxy.
type proxy struct{ url *url.URL }

func (p *proxy) UnmarshalText(text []byte) error {
	u, err := url.Parse(string(text))
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || strings.Trim(u.Path, "/") != "" {
		return fmt.Errorf("is not the URL of a proxy such as http://proxy:4750") // its text can have a password
	}
	p.url = u
	return nil
}

func (s outboundSettings) outbound() web.Outbound {
	return web.Outbound{Loopback: sabotage.Loopback(), Networks: s.AllowNetworks.prefixes, HTTP: s.AllowHTTP, Proxy: s.EgressProxy.url}
}

// warn logs a warning for each setting that allows more.
func (s outboundSettings) warn(log *slog.Logger) {
	if len(s.AllowNetworks.prefixes) > 0 {
		log.Warn("every tenant can send requests to each address and port of these networks (CARILLON_ALLOW_NETWORKS)", "networks", s.AllowNetworks.prefixes)
	}
	if s.AllowHTTP {
		log.Warn("requests to http endpoints are not encrypted: others can read payloads and change key sets on the way (CARILLON_ALLOW_HTTP)")
	}
	if s.EgressProxy.url != nil {
		log.Warn("the proxy alone decides which addresses the names of endpoints and key sets may have (CARILLON_EGRESS_PROXY)", "proxy", s.EgressProxy.url.Host)
	}
}
