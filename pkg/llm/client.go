package llm

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/cairnrun/cairn/pkg/telemetry"
)

// Client calls one endpoint; it is safe for concurrent use.
type Client struct {
	config Config
	host   *url.URL
}

// Model is the client's model name.
func (c *Client) Model() string { return c.config.Model }

// Chat gets one answer. It repeats calls that failed for a reason that time may cure, within MaxCalls and RetryBudget;
// never a request that the provider refuses. The error is an *Error where the provider answered.
func (c *Client) Chat(ctx context.Context, r Request) (*Response, error) {
	wire := r.wire(c.config.Model)
	body, err := json.Marshal(wire)
	if err != nil {
		return nil, fmt.Errorf("request to the model: %w; is a schema not JSON?", err)
	}
	ctx, span := c.span(ctx, wire)
	defer span.End()
	begun := time.Now()
	resp, calls, err := c.repeat(ctx, r, body)
	c.record(ctx, span, wire, resp, err, time.Since(begun))
	if err != nil {
		var e *Error
		if errors.As(err, &e) {
			e.Calls = calls
		}
		return nil, err
	}
	resp.Calls = calls
	return resp, nil
}

func (c *Client) repeat(ctx context.Context, r Request, body []byte) (*Response, int, error) {
	end := time.Now().Add(c.config.RetryBudget)
	wait := c.config.RetryWait
	for calls := 1; ; calls++ {
		told := false
		on := r.OnText
		if on != nil {
			on = func(s string) { told = true; r.OnText(s) }
		}
		resp, err := c.call(ctx, body, on)
		if err == nil {
			return resp, calls, nil
		}
		pause, again := retryable(err)
		if !again || told || calls >= c.config.MaxCalls || ctx.Err() != nil {
			return nil, calls, err
		}
		if pause == 0 {
			pause = wait + time.Duration(rand.Float64()*float64(wait)/4)
			wait *= 2
		}
		if time.Now().Add(pause).After(end) {
			return nil, calls, err
		}
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return nil, calls, err
		}
	}
}

// retryable tells whether another call may help and how long the provider asks to wait.
func retryable(err error) (time.Duration, bool) {
	var e *Error
	if errors.As(err, &e) {
		return e.RetryAfter, e.Retryable()
	}
	var transport *url.Error
	return 0, errors.As(err, &transport) || errors.Is(err, ErrInterrupted) || errors.Is(err, io.ErrUnexpectedEOF)
}

func (c *Client) call(ctx context.Context, body []byte, onText func(string)) (*Response, error) {
	ctx, cancel := context.WithTimeout(ctx, c.config.CallTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.config.BaseURL+"/chat/completions", bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("request to the model: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	if c.config.Key != "" {
		req.Header.Set("Authorization", "Bearer "+c.config.Key)
	}
	resp, err := c.config.HTTP.Do(req)
	if err != nil {
		return nil, fmt.Errorf("call the model at %s: %w", c.config.BaseURL, err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
		return nil, readError(resp.StatusCode, resp.Header, text, time.Now())
	}
	// Asked for a stream, some servers answer whole, and the other way round.
	if kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); kind == "text/event-stream" {
		return readStream(resp.Body, c.config.MaxResponseBytes, onText)
	}
	out, err := readAnswer(resp.Body, c.config.MaxResponseBytes)
	if err == nil && onText != nil && out.Text != "" {
		onText(out.Text)
	}
	return out, err
}

func (c *Client) span(ctx context.Context, w wireRequest) (context.Context, trace.Span) {
	attrs := []attribute.KeyValue{
		telemetry.GenAIOperation.String("chat"), telemetry.GenAIProvider.String("openai"),
		telemetry.GenAIRequestModel.String(w.Model), telemetry.ServerAddress.String(c.host.Hostname()),
	}
	if port, err := strconv.Atoi(c.host.Port()); err == nil {
		attrs = append(attrs, telemetry.ServerPort.Int(port))
	}
	if w.ResponseFormat != nil {
		attrs = append(attrs, telemetry.GenAIOutputType.String("json"))
	}
	if w.Temperature != nil {
		attrs = append(attrs, telemetry.GenAITemperature.Float64(*w.Temperature))
	}
	if w.MaxTokens > 0 {
		attrs = append(attrs, telemetry.GenAIRequestMaxToks.Int(w.MaxTokens))
	}
	return otel.Tracer(telemetry.Scope).Start(ctx, "chat "+w.Model, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(attrs...))
}

func (c *Client) record(ctx context.Context, span trace.Span, w wireRequest, r *Response, err error, took time.Duration) {
	common := []attribute.KeyValue{telemetry.GenAIOperation.String("chat"), telemetry.GenAIRequestModel.String(w.Model)}
	m := telemetry.Metrics()
	if err != nil {
		kind := errorType(err)
		span.SetStatus(codes.Error, err.Error())
		span.SetAttributes(telemetry.ErrorType.String(kind))
		m.ModelDuration.Record(ctx, took.Seconds(), metric.WithAttributes(append(common, telemetry.ErrorType.String(kind))...))
		return
	}
	span.SetAttributes(telemetry.GenAIResponseModel.String(r.Model), telemetry.GenAIResponseID.String(r.ID),
		telemetry.GenAIFinishReasons.StringSlice([]string{r.FinishReason}),
		telemetry.GenAIInputTokens.Int64(r.Usage.InputTokens), telemetry.GenAIOutputTokens.Int64(r.Usage.OutputTokens))
	m.ModelDuration.Record(ctx, took.Seconds(), metric.WithAttributes(common...))
	m.TokenUsage.Record(ctx, r.Usage.InputTokens, metric.WithAttributes(append(common, telemetry.GenAITokenType.String("input"))...))
	m.TokenUsage.Record(ctx, r.Usage.OutputTokens, metric.WithAttributes(append(common, telemetry.GenAITokenType.String("output"))...))
}

// errorType is a short, stable name: the provider's code, else the status, else what happened.
func errorType(err error) string {
	var e *Error
	switch {
	case errors.As(err, &e) && e.Code != "":
		return e.Code
	case errors.As(err, &e) && e.Status != 0:
		return strconv.Itoa(e.Status)
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	case errors.Is(err, context.Canceled):
		return "cancelled"
	case errors.Is(err, ErrTooLarge):
		return "too_large"
	case strings.Contains(err.Error(), "is not JSON"):
		return "unreadable"
	}
	return "transport"
}
