package operations_test

import (
	"fmt"
	"testing"

	"github.com/carillonhq/carillon/operations"
	"github.com/carillonhq/carillon/schedules/schedulestest"
	"github.com/carillonhq/carillon/tenants"
)

func TestOperationsOverHTTP(t *testing.T) {
	t.Parallel()
	e := schedulestest.NewSite(t)
	counting(e.Fixture, steady)
	begun := begin(e.Fixture, operations.Request{Kind: "count", Params: countTo{3}, By: "ann"})
	path := "/v1/operations/" + begun.ID
	a := e.Want(200, "", "GET", path, "")
	if a.Doc["state"] != "pending" || a.Doc["created_by"] != "ann" || fmt.Sprint(a.Doc["params"]) != "map[to:3]" || a.Doc["total"] != nil {
		t.Errorf("got %s", a.Body)
	}
	e.Operate(begun.ID)
	a = e.Want(200, "", "GET", path, "")
	if a.Doc["state"] != "succeeded" || fmt.Sprintf("%v %v %v %v", a.Doc["done"], a.Doc["total"], a.Doc["counts"], a.Doc["result"]) != "3 3 map[numbers:3] map[last:3]" || a.Doc["ended_at"] == nil {
		t.Errorf("got %s", a.Body)
	}
	if again := e.Want(200, "", "POST", path+"/cancel", ""); again.Body != a.Body {
		t.Errorf("cancelled after its end: %s", again.Body)
	}
	second := begin(e.Fixture, operations.Request{Kind: "count", Params: countTo{3}, By: "ann"})
	foreign := begin(e.Fixture, operations.Request{Tenant: e.Other, Kind: "count", Params: countTo{1}, By: "eve"})
	page := e.Want(200, "", "GET", "/v1/operations?limit=1", "")
	if got := ids(page); got != second.ID {
		t.Errorf("the newest are %s, want %s", got, second.ID)
	}
	page = e.Want(200, "", "GET", "/v1/operations?limit=1&cursor="+fmt.Sprint(page.Doc["next_cursor"]), "")
	if got := ids(page); got != begun.ID || page.Doc["next_cursor"] != nil {
		t.Errorf("got %s", page.Body)
	}
	if got := ids(e.Want(200, "", "GET", "/v1/operations?state=pending", "")); got != second.ID {
		t.Errorf("pending are %s", got)
	}
	for range 2 {
		if a := e.Want(200, "", "POST", "/v1/operations/"+second.ID+"/cancel", ""); a.Doc["state"] != "cancelled" {
			t.Errorf("got %s", a.Body)
		}
	}
	if got := e.Operate(second.ID); got.Done != 0 {
		t.Errorf("a cancelled one went on: %+v", got)
	}
	e.Want(404, "not_found", "GET", "/v1/operations/"+foreign.ID, "")
	e.Want(404, "not_found", "POST", "/v1/operations/"+foreign.ID+"/cancel", "")
	e.Want(404, "not_found", "GET", "/v1/operations/op_nonsense", "")
	e.Want(404, "not_found", "POST", "/v1/operations/op_nonsense/cancel", "")
	e.Want(422, "invalid", "GET", "/v1/operations?state=asleep", "")
	e.Want(422, "invalid", "GET", "/v1/operations?state=", "")
	e.Want(422, "invalid_cursor", "GET", "/v1/operations?cursor=x", "")
	e.Want(403, "insufficient_scope", "POST", path+"/cancel", "", "Authorization", "Bearer "+e.Token("acme", tenants.SchedulesRead))
}

func ids(page schedulestest.Answer) (joined string) {
	items, _ := page.Doc["items"].([]any)
	for _, item := range items {
		joined += item.(map[string]any)["id"].(string)
	}
	return joined
}
