package dispatchtest

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/carillonhq/carillon/api/apitest"
	"github.com/carillonhq/carillon/dispatch/events"
	"github.com/carillonhq/carillon/dispatch/push"
)

// Told returns the events that a receiver got, each once. It checks that each is signed and fits the OpenAPI document, with exactly the
// members that this lists.
func (h *Carillon) Told(r *receiver, secret string) (all []events.Event) {
	h.T.Helper()
	seen := map[string]string{}
	for _, got := range r.Requests() {
		if got.SignedBy(h.T, secret) != "yes" {
			h.T.Errorf("not signed: %s", got.Body)
		}
		apitest.Fits(h.T, "Event", got.Body)
		var e events.Event
		if err := json.Unmarshal(got.Body, &e); err != nil {
			h.T.Fatal(err)
		}
		var data map[string]any
		if err := json.Unmarshal(e.Data, &data); err != nil {
			h.T.Fatal(err)
		}
		if have, listed := slices.Sorted(maps.Keys(data)), apitest.New(h.T).EventMembers(e.Type); !slices.Equal(have, listed) {
			h.T.Errorf("the data of %s have %q, and the document lists %q", e.Type, have, listed)
		}
		if id := got.Header.Get("Webhook-Id"); id != e.ID {
			h.T.Errorf("webhook-id is %q, and the event's id %q", id, e.ID)
		}
		if before, again := seen[e.ID]; again {
			if before != string(got.Body) {
				h.T.Errorf("sent again as another: %s, then %s", before, got.Body)
			}
			continue
		}
		seen[e.ID] = string(got.Body)
		all = append(all, e)
	}
	return all
}

// Listener creates an endpoint of the tenant that receives some types of events.
func (h *Carillon) Listener(events ...string) (r *receiver, secret string) {
	h.T.Helper()
	r = NewReceiver(h.T)
	e, _, err := h.Dispatch.Pusher.Endpoints.PutEndpoint(h.T.Context(), h.Tenant, "listener", push.EndpointParams{URL: r.URL, Events: events})
	if err != nil {
		h.T.Fatal(err)
	}
	return r, e.Secret
}
