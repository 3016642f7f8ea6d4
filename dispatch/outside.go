package dispatch

import (
	"context"

	"github.com/labstack/echo/v4"

	"github.com/carillonhq/carillon/tenants"
)

// finishAll ends ticks for who asks: a lease token of a workflow that they are not good for is as good as none.
func (h handler) finishAll(c echo.Context, items []Finish) ([]FinishResult, error) {
	who := tenants.Caller(c)
	err := h.disarm(c, who, len(items), func(i int) (string, *string) { return items[i].TickID, &items[i].LeaseToken })
	if err != nil {
		return nil, err
	}
	return h.Finish(c.Request().Context(), who.Tenant, items)
}

// beatAll lengthens leases for who asks, as finishAll ends ticks.
func (h handler) beatAll(c echo.Context, items []Beat) ([]BeatResult, error) {
	who := tenants.Caller(c)
	err := h.disarm(c, who, len(items), func(i int) (string, *string) { return items[i].TickID, &items[i].LeaseToken })
	if err != nil {
		return nil, err
	}
	return h.Beat(c.Request().Context(), who.Tenant, items)
}

// disarm takes away the lease tokens of ticks that who asks is not good for, of n of which at tells id and token.
func (h handler) disarm(c echo.Context, who tenants.Identity, n int, at func(i int) (id string, token *string)) error {
	ids := make([]string, n)
	for i := range ids {
		ids[i], _ = at(i)
	}
	outside, err := h.outside(c.Request().Context(), who, ids)
	if err != nil {
		return err
	}
	for i, id := range ids {
		if outside[id] {
			_, token := at(i)
			*token = ""
		}
	}
	return nil
}

// outside are those of the ticks whose workflow is not one that a token is good for; nil where it is good for all.
func (d *Dispatch) outside(ctx context.Context, who tenants.Identity, ids []string) (map[string]bool, error) {
	if who.Workflows == nil || len(ids) > mostLeased { // which are refused as too many
		return nil, nil
	}
	of := map[string]int64{}
	var asked []int64
	for _, id := range ids {
		if k, ok := d.IDs.ParseTick(id); ok {
			of[id], asked = k.Schedule, append(asked, k.Schedule)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	whose, err := d.whose(ctx, d.API, who.Tenant, asked)
	if err != nil {
		return nil, err
	}
	outside := map[string]bool{}
	for id, schedule := range of {
		if w, known := whose[schedule]; known && !who.MayUse(w.workflow) {
			outside[id] = true
		}
	}
	return outside, nil
}
