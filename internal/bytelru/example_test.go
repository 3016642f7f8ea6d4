package bytelru_test

import (
	"fmt"

	"github.com/carillonhq/carillon/internal/bytelru"
)

// Each value takes 200 bytes beside its own size, so two of these values fit into 1000 bytes.
func ExampleCache() {
	pages := bytelru.New[string](1000, func(page string) int { return len(page) })
	page := string(make([]byte, 250))
	pages.Add("a", page)
	pages.Add("b", page)
	pages.Get("a") // now b is the least recently used
	pages.Add("c", page)
	for _, key := range []string{"a", "b", "c"} {
		_, found := pages.Get(key)
		fmt.Println(key, found)
	}
	// Output:
	// a true
	// b false
	// c true
}
