package runstore

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
)

// runsToken is where the next page of runs begins; opaque to callers.
type runsToken struct {
	Submitted int64  `json:"s"`
	RunID     string `json:"r"`
	// Filter is a digest: a token goes with the filter that it was made for.
	Filter string `json:"f"`
}

// eventsToken is where the next page of events begins.
type eventsToken struct {
	RunID string `json:"r"`
	After int64  `json:"a"`
}

func encodeToken(t any) string {
	b, err := json.Marshal(t)
	if err != nil {
		panic(fmt.Sprintf("runstore: page token: %v", err))
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

func decodeToken(s string, t any) error {
	b, err := base64.RawURLEncoding.DecodeString(s)
	if err == nil {
		err = json.Unmarshal(b, t)
	}
	if err != nil {
		return invalid("page_token", "it is not a token that this service gave")
	}
	return nil
}

func filterDigest(filter string) string {
	h := sha256.Sum256([]byte(filter))
	return base64.RawURLEncoding.EncodeToString(h[:9])
}

// pageSize checks a request's page size; 0 is the default.
func pageSize(asked int32, standard, maximum int) (int, error) {
	switch {
	case asked < 0 || int(asked) > maximum:
		return 0, invalid("page_size", fmt.Sprintf("%d is outside 1 to %d", asked, maximum))
	case asked == 0:
		return standard, nil
	}
	return int(asked), nil
}
