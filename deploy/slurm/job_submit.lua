-- /etc/slurm/job_submit.lua, with JobSubmitPlugins=lua in slurm.conf. Optional.
-- Refuses requests for GPUs without a type where GPUs are partitioned, and for the type that fills the slots of a node.
-- For a type that does not exist it names the nearest ones; Slurm itself refuses the job.
--
-- It reads the types of each partition from "aliquot-types" beside this file, at each submission:
--   aliquot slurm types --list --out /etc/slurm/aliquot-types
--
-- A site with rules of its own keeps its job_submit.lua, puts this file beside it under another name, and adds a line
-- below its functions. They run after these rules:
--   dofile("/etc/slurm/aliquot_job_submit.lua")

local FILLER = "pad"
-- The controller of this host creates this file (its settings: history, and ".wake") and looks at the queue when it changes
local WAKE = "/var/lib/aliquot/slurm-controller.json.wake"
local PROFILE = "(%d+)g%.(%d+)gb"
local HERE = debug.getinfo(1, "S").source:match("^@(.*/)") or "/etc/slurm/"
local INVALID_GRES = slurm.ESLURM_INVALID_GRES or 2072 -- Slurm 22.05 gives it no name
local OPTIONS = {
  { "tres_per_node", "--gres" },
  { "tres_per_job", "--gpus" },
  { "tres_per_task", "--gpus-per-task" },
  { "tres_per_socket", "--gpus-per-socket" },
}

-- Return the types by partition, and the names of layout features. Without the list there are none.
local function read_list()
  local types, layouts = {}, {}
  local file = io.open(HERE .. "aliquot-types")
  if file then
    for line in file:lines() do
      local partition, kind = line:match("^type (%S+) (%S+)$")
      if partition then
        types[partition] = types[partition] or {}
        table.insert(types[partition], kind)
      end
      layouts[line:match("^layout (%S+)$") or ""] = true
    end
    file:close()
  end
  return types, layouts
end

-- Call found(type, count) for each GPU request; the type is nil without one: "gres:gpu:a100:1", "gres/gpu:a100=1".
local function each_gpu(value, found)
  for part in value:gmatch("[^,]+") do
    local rest = part:gsub("^gres[:/]", ""):match("^gpu(.*)$")
    local count = rest and (rest == "" and "1" or rest:match("^[:=](%d+%a?)$"))
    if count then
      found(nil, count)
    elseif rest then
      local kind, number = rest:match("^:([^:=]+)[:=]?(%d*%a?)$")
      if kind then found(kind, number) end
    end
  end
end

-- Return compute slices and gigabytes of a profile in a type's name.
local function size(kind)
  local compute, memory = kind:lower():match(PROFILE)
  return tonumber(compute), tonumber(memory)
end

-- Return at most three types: by compute slices, then memory; without a profile those of that model.
local function nearest(wanted, types)
  local compute, memory = size(wanted)
  local near = {}
  for _, kind in ipairs(types) do
    local its_compute, its_memory = size(kind)
    if compute and its_compute then
      table.insert(near, { kind, math.abs(compute - its_compute), math.abs(memory - its_memory) })
    elseif not compute and kind:sub(1, #wanted + 1) == wanted .. "_" then
      table.insert(near, { kind, 0, 0 })
    end
  end
  table.sort(near, function(a, b)
    if a[2] ~= b[2] then return a[2] < b[2] end
    if a[3] ~= b[3] then return a[3] < b[3] end
    return a[1] < b[1]
  end)
  local names = {}
  for n = 1, math.min(3, #near) do names[n] = near[n][1] end
  return names
end

local function contains(list, wanted)
  for _, each in ipairs(list) do
    if each == wanted then return true end
  end
  return false
end

-- Return the names in "a,b", or the default partition.
local function partitions_of(text, part_list)
  local names = {}
  for name in (text or ""):gmatch("[^,]+") do table.insert(names, name) end
  if #names == 0 then
    for name, partition in pairs(part_list or {}) do
      if partition.flag_default == 1 then table.insert(names, name) end
    end
  end
  return names
end

-- Report whether a constraint names a layout: such a job may request GPUs without a type.
local function names_layout(features, layouts)
  for word in (features or ""):gmatch("[%w_.+-]+") do
    if layouts[word] or word:match(PROFILE) then return true end
  end
  return false
end

local function say(...) slurm.log_user("%s", "aliquot: " .. string.format(...)) end

-- Return whether a request is acceptable, and tell the user why not.
local function acceptable(option, kind, partition, types, by_layout)
  if kind == FILLER then
    say("%s: the type %s stands for no device; request one of 'aliquot slurm types'", option, FILLER)
    return false
  end
  local partitioned = table.concat(types, " "):match(PROFILE)
  if not kind and partitioned and not by_layout then
    say("%s needs a type in partition %s, whose GPUs are partitioned: %s=%sTYPE:1 with TYPE one of %s", option,
      partition, option, option == "--gres" and "gpu:" or "", table.concat(types, ", "))
    return false
  end
  if kind and #types > 0 and not contains(types, kind) then
    local near = table.concat(nearest(kind, types), ", ")
    say("partition %s has no type %s; %s", partition, kind:sub(1, 64),
      near ~= "" and "nearest: " .. near or "see 'aliquot slurm types'")
  end
  return true
end

local function check(job, partitions, features)
  local types, layouts = read_list()
  local by_layout = names_layout(features, layouts)
  local fine = true
  for _, row in ipairs(OPTIONS) do
    each_gpu(job[row[1]] or "", function(kind, count)
      for _, partition in ipairs(#partitions > 0 and partitions or { "?" }) do
        if fine and count ~= "0" then fine = acceptable(row[2], kind, partition, types[partition] or {}, by_layout) end
      end
    end)
  end
  return fine and slurm.SUCCESS or INVALID_GRES
end

-- Wake the controller for a job that may need another layout. Without a controller there is no file; writing never waits.
local function wake(job)
  local wants = (job.features or "") ~= ""
  for _, row in ipairs(OPTIONS) do wants = wants or (job[row[1]] or ""):find("gpu", 1, true) end
  local file = wants and io.open(WAKE, "r+")
  if file then
    file:write("\n")
    file:close()
  end
end

local site_submit, site_modify = slurm_job_submit, slurm_job_modify

function slurm_job_submit(job, part_list, uid)
  local code = check(job, partitions_of(job.partition, part_list), job.features)
  if code == slurm.SUCCESS and site_submit then code = site_submit(job, part_list, uid) end
  if code == slurm.SUCCESS then wake(job) end
  return code
end

function slurm_job_modify(job, record, part_list, uid)
  local partitions = partitions_of(job.partition or record.partition, part_list)
  local code = check(job, partitions, job.features or record.features)
  if code ~= slurm.SUCCESS or not site_modify then return code end
  return site_modify(job, record, part_list, uid)
end

return slurm.SUCCESS
