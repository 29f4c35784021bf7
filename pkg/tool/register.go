package tool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

// register puts the definition into the registry by compare and swap. A newer version that is already there stays: during a
// roll-out old instances go on beside new ones.
func (w *worker) register(ctx context.Context) error {
	kv, err := w.js.KeyValue(ctx, BucketTools)
	if err != nil {
		return fmt.Errorf("registry %s: %w; create it with: cairn init --nats URL", BucketTools, err)
	}
	def := w.tool.def
	value, err := def.Encode()
	if err != nil {
		return err
	}
	for {
		entry, err := kv.Get(ctx, def.Name)
		switch {
		case errors.Is(err, jetstream.ErrKeyNotFound):
			_, err = kv.Create(ctx, def.Name, value)
		case err != nil:
		default:
			var there Definition
			if json.Unmarshal(entry.Value(), &there) == nil {
				if there.Digest == def.Digest {
					return nil
				}
				if olderVersion(def.Version, there.Version) {
					w.Logger.Warn("a newer version is registered and stays", "tool", def.Name, "version", def.Version, "registered", there.Version)
					return nil
				}
			}
			_, err = kv.Update(ctx, def.Name, value, entry.Revision())
		}
		if err == nil {
			w.Logger.Info("tool registered", "tool", def.Name, "version", def.Version)
			return nil
		}
		if !lostRace(err) {
			return fmt.Errorf("register %s: %w", def.Name, err)
		}
	}
}

// Two codes say that somebody else wrote first.
func lostRace(err error) bool {
	if errors.Is(err, jetstream.ErrKeyExists) {
		return true
	}
	var api *jetstream.APIError
	return errors.As(err, &api) && isConflict(api)
}

// codeWrongLastSequenceConstant is sent where the newer of the server's two checks notices.
const codeWrongLastSequenceConstant jetstream.ErrorCode = 10164

func isConflict(e *jetstream.APIError) bool {
	return e.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence || e.ErrorCode == codeWrongLastSequenceConstant
}
