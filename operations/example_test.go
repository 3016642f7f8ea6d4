package operations_test

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/carillonhq/carillon/operations"
)

// A step counts up to the params, two at a time. It reads the cursor of the last step, and stores the one of the next.
func ExampleStep() {
	var step operations.Step = func(_ context.Context, _ pgx.Tx, op *operations.Operation) (done bool, err error) {
		var params struct {
			Upto int `json:"upto"`
		}
		var at int
		if _, err := op.Read(&params, &at); err != nil {
			return false, err
		}
		part := min(2, params.Upto-at)
		op.Done += int64(part)
		op.Count("counted", int64(part))
		if at += part; at == params.Upto {
			return true, nil
		}
		return false, op.Keep(at)
	}

	// Operations.Run does this, each step in a transaction of its own.
	op := &operations.Operation{Kind: "count", Params: json.RawMessage(`{"upto": 5}`), Counts: map[string]int64{}}
	for done := false; !done; {
		var err error
		if done, err = step(context.Background(), nil, op); err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(op.Done, string(op.Cursor), op.Counts)
	}
	// Output:
	// 2 2 map[counted:2]
	// 4 4 map[counted:4]
	// 5 4 map[counted:5]
}
