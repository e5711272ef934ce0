-- wrk: objects of one size, all equally popular; the last line of the output is the report as JSON.
local size, objects

function init(arguments)
    size, objects = arguments[1], tonumber(arguments[2])
    math.randomseed(1)
end

function request()
    return wrk.format("GET", "/" .. size .. "/" .. math.random(0, objects - 1))
end

function done(summary, latency)
    local errors = summary.errors
    local failed = errors.connect + errors.read + errors.write + errors.status + errors.timeout
    io.write(string.format('\n{"requests": %d, "seconds": %f, "p50_us": %d, "p99_us": %d, "errors": %d}\n',
        summary.requests, summary.duration / 1e6, latency:percentile(50), latency:percentile(99), failed))
end
