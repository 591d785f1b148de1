-- Refuse requests that could get a pad of a slot board, which is a record without a device: copy this file to the
-- directory of slurm.conf and set JobSubmitPlugins=lua there. A request must name the type of each GPU:
--   sbatch --gres=gpu:a100_3g.20gb:1      accepted
--   sbatch --gres=gpu:1, --gpus=1         refused: any type
--   sbatch --gres=gpu:pad:1               refused
-- A cluster in which some partitions have other GPUs may name those here, and they accept a GPU of any type.
local other_partitions = {}

local requests = { "tres_per_node", "tres_per_job", "tres_per_socket", "tres_per_task" }

-- Return the reason to refuse one entry, such as gres/gpu:a100_3g.20gb:1 (22.05 writes gres:gpu:...), or nil.
local function refusal(entry)
  local words = entry:gsub("^gres[/:]", ""):gsub("=", ":")
  if words ~= "gpu" and words:sub(1, 4) ~= "gpu:" then
    return nil
  end
  local kind = words:match("^gpu:([^:]+)")
  if kind == nil or kind:match("^%d+$") then
    return "name the type of the GPU, for example --gres=gpu:a100_3g.20gb:1 (sinfo -o %G lists the types)"
  end
  if kind == "pad" then
    return "the type pad stands for no device"
  end
  return nil
end

local function check(job)
  if job.partition ~= nil and other_partitions[job.partition] then
    return slurm.SUCCESS
  end
  for _, key in ipairs(requests) do
    for entry in string.gmatch(job[key] or "", "[^,]+") do
      local reason = refusal(entry)
      if reason ~= nil then
        slurm.log_user("%s: %s", entry, reason)
        return slurm.ERROR
      end
    end
  end
  return slurm.SUCCESS
end

function slurm_job_submit(job, partitions, user)
  return check(job)
end

function slurm_job_modify(job, record, partitions, user)
  return check(job)
end
