package ident_test

import (
	"fmt"

	"github.com/carillonhq/carillon/internal/ident"
)

// An id does not reveal the row's key. Only a codec with the same key reads it back.
func ExampleCodec() {
	ids, err := ident.New([]byte("0123456789abcdef"))
	if err != nil {
		fmt.Println(err)
		return
	}
	id := ids.Schedule(42)
	fmt.Println(id)
	fmt.Println(ids.ParseSchedule(id))
	_, ok := ids.ParseOperation(id)
	fmt.Println("an operation's:", ok)
	// Output:
	// sch_nit3agqqfca05qhms97s24frps
	// 42 true
	// an operation's: false
}
